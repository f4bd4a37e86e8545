-- Take permits of a counting semaphore: Redisson's RSemaphore, a string with the number that is free.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- ARGV[1] how many  ARGV[2] not after, server ms (0: any time)
-- Reply {status, free, server ms}: 1 taken, free is what is left; 0 too few are free (a missing key: none);
--   2 too late, nothing done; 3 the key holds no integer, nothing done
-- Twice: takes twice. It is sent once.
-- uses: clock, kind
local key, permits, record, n, notafter = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), ARGV[2]
refuse_all_but_counting(permits, record)
local now = clock()
if late(notafter, now) then
  return {2, 0, now}
end
local value = redis.call('GET', key) or '0'
if not integer(value) then
  return {3, 0, now}
end
local free = tonumber(value)
if free < n then
  return {0, free, now}
end
return {1, redis.call('INCRBY', key, digits(-n)), now}
