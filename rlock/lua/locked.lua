-- How many owners hold a lock that is a hash.
-- uses: owners
-- KEYS[1] the lock
-- Reply: the number of them; of a lock that is a string (string_holder) 1
-- Twice: reads only.
local n = redis.pcall('HLEN', KEYS[1])
if type(n) == 'number' then
  return n
end
-- libraries
local left = redis.call('PTTL', KEYS[1])
return string_holder(KEYS[1], left) and 1 or redis.call('HLEN', KEYS[1])
