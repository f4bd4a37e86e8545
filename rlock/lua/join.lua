-- Join the hold of another owner of this library: the lock is free when both are released. The joiner gets a field and
-- a lease of its own. From then on each owner of this lock has a lease of its own ("owner!" -> its end, server ms). So
-- an owner that dies keeps the lock for its own lease only. A released owner has a negative end (see keep), and is not
-- joined.
-- uses: owners, clock
-- KEYS[1] the lock
-- ARGV[1] owner to join  ARGV[2] joiner  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- Reply {status, ms, server ms}, as acquire: 1 joined; 2 too late, nothing done; 3 the owner to join holds nothing
-- Twice: the joiner's lease is only raised.
local key, parent, joiner, lease = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local refusal, now = check_request(parent ~= '' and joiner or nil, lease, ARGV[4])
if refusal then
  return refusal
end
local held = redis.call('HMGET', key, joiner, joiner .. '!', parent, parent .. '!', 'mode')
if held[5] then -- the scripts of a read-write lock would not remove the joiner
  return redis.error_reply('WRONGTYPE a read-write lock cannot be joined')
end
local left = redis.call('PTTL', key)
local ends_at = now + lease
if held[1] then
  ends_at = math.max(ends_at, tonumber(held[2] or 0))
elseif not held[3] or held[4] and expired(held[4], now) then
  return {3, 0, now}
end
if held[3] and not held[4] and left >= 0 then
  -- until now the expiry of the key was the owner's end
  redis.call('HSET', key, parent .. '!', digits(now + left))
end
redis.call('HSET', key, joiner, 1, joiner .. '!', digits(ends_at))
if left >= 0 and left < lease then
  redis.call('PEXPIRE', key, lease)
end
return {1, lease, now}
