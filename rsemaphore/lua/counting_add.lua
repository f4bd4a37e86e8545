-- Add to the free permits of a counting semaphore, or take from them without asking whether they are there; and hand them to those
-- that wait.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- KEYS[4] queue  KEYS[5] given  KEYS[6] claimed (see lib/given.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] channels of grants, without the process
-- ARGV[4] the process  ARGV[5] ms between its polls
-- ARGV[6] how many, negative to take  ARGV[7] 1: only if the key is there
-- Reply {status, free, ms after which to ask for the first in line (-1: another process does), lease and base of those of this process
--   that were given some}: 1 added, free is the new count; 0 there is no key, nothing done
-- Twice: adds twice. It is sent once.
-- INCRBY keeps the key's expiry; Redisson's addPermits drops it. The message is the new count, as Redisson sends it. It frees
-- that many waiters of a Java process. A count that frees no waiter is not sent, because a negative one makes Redisson's
-- listener throw. A user without rights on the channel can still add; waiters then poll.
-- uses: clock, given, kind, wake
local key, permits, record, given = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local n, ifthere = ARGV[6], ARGV[7] == '1'
refuse_all_but_counting(permits, record)
local there = redis.call('EXISTS', key) == 1
if ifthere and not there then
  return {0, 0, -1}
end
local q = line_of()
local free, back = redis.call('INCRBY', key, n), 0
if there then
  back = reclaim(given, q.now)
else
  redis.call('DEL', given)
end
if back > 0 then
  free = redis.call('INCRBY', key, digits(back))
end
local left, own, look, tell = hand_over(q, key, given, free, back + tonumber(n))
if tell then
  wake_for(q.publish, q.channel, left)
end
return and_own({1, left, look}, own)
