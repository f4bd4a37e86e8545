-- Leave a hold of a read-write lock to the end of a lease that is counted from now: see keep.
-- uses: owners, rw, clock
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its timeout key; of a writer the lock again  KEYS[4] if there is one: see keep
-- ARGV[1] field  ARGV[2] lease, ms  ARGV[3] if there is one: see keep
-- Reply: 1 done; 2 done, and readers of Redisson's are left whose ends are to be looked at: see trim; 0 the owner holds nothing
-- Twice: the end is set, not added to.
local lock, ends, timeout, field, lease = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local bad = unfit(field, lease)
if bad then
  return bad
end
local now = clock()
local till = redis.call('ZSCORE', ends, field)
if redis.call('HEXISTS', lock, field) == 0 or till and expired(till, now) then
  return 0
end
redis.call('ZREM', ends, '') -- a write before the others: see rw_read_renew.lua
if KEYS[4] then
  redis.call('SET', KEYS[4], '1', 'PX', lease)
end
if ARGV[3] then
  lease = math.max(lease, till and tonumber(till) - now or redis.call('PTTL', lock))
end
if not till and writes(field) then -- it reads nothing: the lock's end is its own
  redis.call('PEXPIRE', lock, lease)
  return 1
end
redis.call('ZADD', ends, digits(now + lease), field)
if timeout ~= lock then
  redis.call('SET', timeout, '1', 'PX', lease)
end
for _, key in ipairs({lock, ends}) do
  if redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
  end
end
local _, look = trim(lock, ends, now)
return look and 2 or 1
