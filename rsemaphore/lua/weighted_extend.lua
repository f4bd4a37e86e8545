-- Raise the leases of weights by their ids, all or none.
-- KEYS[1] main  KEYS[2] leases
-- ARGV[1] lease, ms  ARGV[2…] bases
-- Reply: 1 all of them are held, for that long at least; 0 not all are, and nothing was changed
-- Twice: a lease is raised to what is asked, never shortened, and only that of what is out and not over: a run that comes after the
--   release does nothing.
-- uses: clock, integer
local main, leases, lease = KEYS[1], KEYS[2], tonumber(ARGV[1])
local now = clock()
for i = 2, #ARGV do
  local till = redis.call('ZSCORE', leases, ARGV[i])
  if not till or expired(till, now) or redis.call('HEXISTS', main, ARGV[i]) == 0 then
    return 0
  end
end
local ms = math.max(lease + 1, whole(redis.call('HGET', main, 'keep'), 'time of a semaphore') or 0)
-- When memory is full, ZADD is refused as the first write of a script even where it adds nothing. ZREM is not.
redis.call('ZREM', leases, '')
for i = 2, #ARGV do
  redis.call('ZADD', leases, 'XX', 'GT', digits(now + lease), ARGV[i])
end
for _, key in ipairs({main, leases}) do
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, digits(ms))
  end
end
return 1
