-- Add to the free permits of a counting semaphore, or take from them without asking whether they are there.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- ARGV[1] how many, negative to take  ARGV[2] 1: only if the key is there  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- Reply {status, free}: 1 added, free is the new count; 0 there is no key, nothing done
-- Twice: adds twice. It is sent once.
-- INCRBY keeps the key's expiry; Redisson's addPermits drops it. The message is the new count, as Redisson sends it. It frees
-- that many waiters of a Java process. A count that frees no waiter is not sent, because a negative one makes Redisson's
-- listener throw. A user without rights on the channel can still add; waiters then poll.
-- uses: kind, wake
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
local n, ifthere, channel, publish = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
refuse_all_but_counting(permits, record)
if ifthere and redis.call('EXISTS', key) == 0 then
  return {0, 0}
end
local free = redis.call('INCRBY', key, n)
wake_for(publish, channel, free)
return {1, free}
