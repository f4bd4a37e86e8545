-- Take all free permits of a counting semaphore, whatever their number, a debt too.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- Reply {status, taken}: 1 taken, the count is 0 now; 0 there is no key; 3 the key holds no integer, nothing done
-- Twice: the second run takes what has come since. It is sent once.
local key = KEYS[1]
refuse_semaphore(KEYS[2], 'CountingSemaphore')
refuse_latch(KEYS[3], 'CountingSemaphore')
local value = redis.call('GET', key)
if not value then
  return {0, 0}
end
if value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then
  return {3, 0}
end
redis.call('SET', key, '0', 'KEEPTTL')
return {1, tonumber(value)}
