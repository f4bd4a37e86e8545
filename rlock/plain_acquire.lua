-- Take a plain mutex: one string key whose value is its owner, as in the Redis documentation's pattern (SET NX PX).
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- Reply {status, ms, server ms, …} as acquire: 1 granted; 0 held by another, ms left (-1 without end), 0, 1 if it is
--   none of ours; 2 too late, nothing done
-- Twice: the owner's own key is granted again, its lease only ever raised.
local key, owner, lease, notafter = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if owner == '' or not (lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then -- see fit
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local held = redis.call('GET', key)
if not held then
  redis.call('SET', key, owner, 'PX', lease)
  return {1, lease, now}
end
local left = redis.call('PTTL', key)
if held ~= owner then
  local ours = string.match(held, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d')
  return {0, left, now, 0, ours and 0 or 1}
end
if left >= 0 then
  left = math.max(left, lease)
  redis.call('PEXPIRE', key, left) -- a write in any case: see acquire
end
return {1, left, now}
