-- Whether a plain mutex is held.
-- KEYS[1] the lock
-- Reply: 1 or 0
-- Twice: reads only.
return redis.call('GET', KEYS[1]) and 1 or 0
