-- Add free permits to a counting semaphore, or remove some even if fewer are free, and wake waiters.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] number of permits, negative to remove
-- Reply the new count
-- Twice: adds twice. The call is sent once.
-- INCRBY keeps the key's expiry; Redisson's addPermits drops it. The message is the new count, like Redisson's,
-- and releases so many waiters of a Java process. A count below 1 is not sent, because a negative count makes
-- Redisson's listener throw. A user without rights on the channel can still add; waiters then poll.
-- uses: kind, wake
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
refuse_all_but_counting(permits, record)
local free = redis.call('INCRBY', key, ARGV[3])
wake_for_permits(ARGV[2], ARGV[1], free)
return free
