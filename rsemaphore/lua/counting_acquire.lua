-- Take permits of a counting semaphore: Redisson's RSemaphore, a string with the number that is free.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] how many  ARGV[2] not after, server ms (0: any time)
-- Reply {status, free, server ms}: 1 taken, free is what is left; 0 too few are free (a missing key: none);
--   2 too late, nothing done; 3 the key holds no integer, nothing done
-- Twice: takes twice. It is sent once.
local key, n, notafter = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
refuse_semaphore(KEYS[2], 'CountingSemaphore')
refuse_latch(KEYS[3], 'CountingSemaphore')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local value = redis.call('GET', key) or '0'
if value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then
  return {3, 0, now}
end
local free = tonumber(value)
if free < n then
  return {0, free, now}
end
return {1, redis.call('INCRBY', key, string.format('%.0f', -n)), now}
