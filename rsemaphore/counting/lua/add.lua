-- Add to the free permits of a counting semaphore, or take from them without asking whether they are there; and wake waiters.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] how many, negative to take
-- Reply the new count
-- Twice: adds twice. It is sent once.
-- INCRBY keeps the key's expiry; Redisson's addPermits drops it. The message is the new count, as Redisson sends it. It frees
-- that many waiters of a Java process. A count that frees no waiter is not sent, because a negative one makes Redisson's
-- listener throw. A user without rights on the channel can still add; waiters then poll.
-- uses: kind, wake
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
refuse_all_but_counting(permits, record)
local free = redis.call('INCRBY', key, ARGV[3])
wake_for_permits(ARGV[2], ARGV[1], free)
return free
