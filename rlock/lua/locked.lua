-- How many owners hold a lock that is a hash.
-- KEYS[1] the lock
-- Reply: the number of them
-- Twice: reads only.
return redis.call('HLEN', KEYS[1])
