-- Take a plain mutex: one string key whose value is its owner, as in the Redis documentation's pattern (SET NX PX).
-- uses: owners
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- Reply {status, ms, server ms, …} as acquire: 1 granted; 0 held by another, ms left (-1 without end), 0, 1 if it is
--   none of ours; 2 too late, nothing done
-- Twice: the owner's own key is granted again, its lease only ever raised.
local key, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local no, now = refuse(owner, 1, lease, ARGV[3])
if no then
  return no
end
local held = redis.call('GET', key)
if not held then
  redis.call('SET', key, owner, 'PX', lease)
  return {1, lease, now}
end
local left = redis.call('PTTL', key)
if held ~= owner then
  return {0, left, now, 0, ours(held) and 0 or 1}
end
if left >= 0 then
  left = math.max(left, lease)
  redis.call('PEXPIRE', key, left) -- a write in any case: see grant
end
return {1, left, now}
