-- Look at a lock without changing it.
-- KEYS[1] the lock  ARGV[1] owner, may be empty
-- Reply {owners, count of this owner, ms left (-1 without end, -2 not locked)}
-- Twice: reads only.
local key, owner = KEYS[1], ARGV[1]
return {redis.call('HLEN', key), tonumber(redis.call('HGET', key, owner) or 0), redis.call('PTTL', key)}
