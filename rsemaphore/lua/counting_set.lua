-- Set the permits of a counting semaphore that has none: Redisson's trySetPermits.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] how many  ARGV[2] TTL, ms (0: none)  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- Reply: 1 set; 0 the key is there, nothing done
-- Twice: the second run says 0 of what the first has set. It is sent once.
local key, n, ttl, channel, publish = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
refuse_semaphore(KEYS[2], 'CountingSemaphore')
refuse_latch(KEYS[3], 'CountingSemaphore')
if redis.call('EXISTS', key) == 1 then
  return 0
end
if ttl == '0' then
  redis.call('SET', key, n)
else
  redis.call('SET', key, n, 'PX', ttl)
end
if n ~= '0' then
  redis.pcall(publish, channel, n)
end
return 1
