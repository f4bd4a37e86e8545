-- Join the hold of another owner of ours: the lock is free when both are released. The joiner gets a field and a lease
-- of its own; from then on every owner of this lock has one ("owner!" -> its end, server ms), so that the death of one
-- keeps no other out for longer than its lease. The end of an owner that is done is below 0 (see keep): it is not joined.
-- uses: owners, clock
-- KEYS[1] the lock
-- ARGV[1] owner joined  ARGV[2] joiner  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- Reply {status, ms, server ms}, as acquire: 1 joined; 2 too late, nothing done; 3 the owner joined holds nothing
-- Twice: the joiner's lease is only ever raised.
local key, parent, joiner, lease = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local no, now = check_request(parent ~= '' and joiner or nil, lease, ARGV[4])
if no then
  return no
end
local held = redis.call('HMGET', key, joiner, joiner .. '!', parent, parent .. '!', 'mode')
if held[5] then -- the joiner would be none of its holds, and stay behind
  return redis.error_reply('WRONGTYPE a read-write lock cannot be joined')
end
local left = redis.call('PTTL', key)
local till = now + lease
if held[1] then
  till = math.max(till, tonumber(held[2] or 0))
elseif not held[3] or held[4] and expired(held[4], now) then
  return {3, 0, now}
end
if held[3] and not held[4] and left >= 0 then
  -- until now the owner's lease was the key's
  redis.call('HSET', key, parent .. '!', digits(now + left))
end
redis.call('HSET', key, joiner, 1, joiner .. '!', digits(till))
if left >= 0 and left < lease then
  redis.call('PEXPIRE', key, lease)
end
return {1, lease, now}
