-- Take all free permits of a counting semaphore. A negative number of them is taken, too: the count becomes 0.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- Reply {status, taken}: 1 taken, the count is 0 now; 0 there is no key; 3 the key holds no integer, nothing done
-- Twice: the second run takes what has come since. It is sent once.
-- uses: integer, kind
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
refuse_all_but_counting(permits, record)
local value = redis.call('GET', key)
if not value then
  return {0, 0}
end
if not integer(value) then
  return {3, 0}
end
redis.call('SET', key, '0', 'KEEPTTL')
return {1, tonumber(value)}
