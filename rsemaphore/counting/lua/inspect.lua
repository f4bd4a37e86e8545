-- Read a counting semaphore.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- Reply {status, free, ms}: 1, with ms left of its TTL (-1: no TTL, -2: no key); 3 the key holds no integer
-- Twice: reads only.
-- uses: integer, kind
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
refuse_all_but_counting(permits, record)
local value = redis.call('GET', key) or '0'
if not is_integer(value) then
  return {3, 0, 0}
end
return {1, value, redis.call('PTTL', key)}
