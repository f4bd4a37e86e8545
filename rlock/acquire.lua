-- Take the lock, or raise the count of its owner. Reentrant lock on Redisson's layout: a hash, owner -> count.
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- Reply {status, ms, server ms}: 1 granted, ms left of the lease; 0 held by another, ms left (-1 without end);
--   2 too late, nothing done; 3 lost, the owner to be re-entered holds nothing
-- Twice: the count is set to what is wanted, never added to, and the lease is only ever raised.
local key, owner, want, lease, notafter = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local left = redis.call('PTTL', key)
if left == -2 then -- free, the common case: nothing to look at
  if want > 1 then
    return {3, 0, now}
  end
  redis.call('HSET', key, owner, want)
  redis.call('PEXPIRE', key, lease)
  return {1, lease, now}
end
local held = redis.call('HMGET', key, owner, owner .. '!')
local count, till = tonumber(held[1]), tonumber(held[2])
if not count then
  if want > 1 then
    return {3, 0, now}
  end
  return {0, left, now}
end
if till then -- joined: this owner has a lease of its own (see join)
  if till <= now then
    return {3, 0, now}
  end
  if till < now + lease then
    redis.call('HSET', key, owner .. '!', string.format('%.0f', now + lease))
  end
end
if count < want then
  redis.call('HSET', key, owner, want)
end
if left < lease and left ~= -1 then
  redis.call('PEXPIRE', key, lease)
  left = lease
end
return {1, left, now}
