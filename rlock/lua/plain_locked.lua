-- Check whether a plain mutex is held.
-- uses: owners
-- KEYS[1] the lock
-- Reply: 1 or 0; 1 for a lock that is a hash (hash_holder)
-- Twice: reads only.
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'table' then
  return held and 1 or 0
end
-- libraries
local left = redis.call('PTTL', KEYS[1])
return hash_holder(KEYS[1], left) and 1 or redis.call('GET', KEYS[1])
