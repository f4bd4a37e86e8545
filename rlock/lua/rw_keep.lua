-- End a hold of a read-write lock, and keep its field until the end of a lease that counts from now: see keep.lua.
-- uses: owners, rw, clock
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] the reader's timeout key; for a writer the lock again  KEYS[4] optional:
--   see keep.lua
-- ARGV[1] field  ARGV[2] lease, ms  ARGV[3] optional: see keep.lua
-- Reply: 1 done; 2 done, and the caller should read the ends of Redisson's readers that are left: see rw_trim.lua;
--   0 the owner holds nothing
-- Twice: the end is set, not added to.
local lock, ends, timeout, field, lease = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local refusal = validation_error(field, lease)
if refusal then
  return refusal
end
local now = clock()
local end_ms = redis.call('ZSCORE', ends, field)
if redis.call('HEXISTS', lock, field) == 0 or end_ms and expired(end_ms, now) then
  return 0
end
redis.call('ZREM', ends, '') -- must be the first write: see rw_read_renew.lua
if KEYS[4] then
  redis.call('SET', KEYS[4], '1', 'PX', lease)
end
if ARGV[3] then
  lease = math.max(lease, end_ms and tonumber(end_ms) - now or redis.call('PTTL', lock))
end
if not end_ms and is_writer_field(field) then -- a writer without a read hold: the expiry of the lock is its end
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
local _, has_unknown_ends = trim(lock, ends, now)
return has_unknown_ends and 2 or 1
