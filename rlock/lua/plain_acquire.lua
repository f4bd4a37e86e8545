-- Take a plain mutex: one string key whose value is its owner, as in the Redis documentation's pattern (SET NX PX).
-- uses: owners, handover
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)  ARGV[4] channel  ARGV[5] PUBLISH or SPUBLISH
-- Reply as acquire: server ms, one integer, if it was free and is granted; otherwise {status, ms, server ms, …}: 1 granted;
--   0 held by another, ms left (-1 without end), 0, 1 if it is none of ours, 0, 0, how many listen for its release; 2 too late, nothing done
-- Twice: the owner's own key is granted again, its lease only ever raised.
local key, owner, lease, notafter = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it says itself what fit, clock and late say.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
if redis.call('SET', key, owner, 'NX', 'PX', ARGV[2]) then
  return now
end
-- libraries
local held = redis.call('GET', key)
local left = redis.call('PTTL', key)
if held ~= owner then
  return {0, left, now, 0, ours(held) and 0 or 1, 0, 0, listeners(ARGV[5], ARGV[4]) or 0}
end
if left >= 0 then
  left = math.max(left, lease)
  redis.call('PEXPIRE', key, left) -- a write in any case: see grant
end
return {1, left, now}
