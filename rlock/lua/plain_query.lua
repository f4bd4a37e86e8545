-- Look at a plain mutex without changing it.
-- KEYS[1] the lock  ARGV[1] owner, may be empty
-- Reply {owners, 1 if this owner is it, ms left (-1 without end, -2 not locked)}
-- Twice: reads only.
local held = redis.call('GET', KEYS[1])
return {held and 1 or 0, held == ARGV[1] and 1 or 0, redis.call('PTTL', KEYS[1])}
