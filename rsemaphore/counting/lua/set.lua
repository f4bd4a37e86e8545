-- Set the permits of a counting semaphore without a count, Redisson's trySetPermits, and wake waiters.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see kind.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] number of permits  ARGV[4] TTL, ms (0: none)
-- Reply 1: set; 0: the key exists, nothing is done
-- Twice: the second run finds what the first has set, and replies 0. The call is sent once.
-- uses: kind, wake
local key, permits, record = KEYS[1], KEYS[2], KEYS[3]
local amount, ttl = ARGV[3], ARGV[4]
refuse_all_but_counting(permits, record)
if redis.call('EXISTS', key) == 1 then
  return 0
end
if ttl == '0' then
  redis.call('SET', key, amount)
else
  redis.call('SET', key, amount, 'PX', ttl)
end
wake_for_permits(ARGV[2], ARGV[1], tonumber(amount))
return 1
