-- Count the owners of a lock that is a hash.
-- uses: owners
-- KEYS[1] the lock
-- Reply: the number of owners; 1 for a lock that is a string (string_holder)
-- Twice: reads only.
local owners = redis.pcall('HLEN', KEYS[1])
if type(owners) == 'number' then
  return owners
end
-- libraries
local left = redis.call('PTTL', KEYS[1])
return string_holder(KEYS[1], left) and 1 or redis.call('HLEN', KEYS[1])
