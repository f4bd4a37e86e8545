-- Acquire permits of a counting semaphore, Redisson's RSemaphore, all or none.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] number of permits  ARGV[2] not after, server ms (0: any time)
-- Reply {status, server ms}: 1 taken; 0 too few permits are free; 2 too late, 3 the key holds no integer: nothing is
--   done
-- Twice: takes twice. The call is sent once.
-- uses: clock, integer, kind
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
local amount, notafter = ARGV[1], ARGV[2]
refuse_all_but_counting(permits, record)
local now = clock()
if late(notafter, now) then
  return {2, now}
end
local value = redis.call('GET', key)
if value and not is_integer(value) then
  return {3, now}
end
if not value or tonumber(value) < tonumber(amount) then
  return {0, now}
end
redis.call('INCRBY', key, '-' .. amount)
return {1, now}
