-- Raise the leases of permits by their ids, all or none.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV[1] lease, ms  ARGV[2…] ids, 16 bytes each
-- Reply: 1 all of them are held, for that long at least; 0 not all are, and nothing was changed
-- Twice: a lease is raised to what is asked, never shortened, and only that of an id that is out and not over: a run that comes
--   after the release does nothing.
-- uses: clock, integer, permits
local count, permits, notes, lease = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])
local now = clock()
local keep = whole(redis.call('HGET', notes, 'keep'), 'time in the notes of a semaphore') or 0
for i = 2, #ARGV do
  local till = redis.call('ZSCORE', permits, ARGV[i])
  if not till or expired(till, now) then
    return 0
  end
end
-- When memory is full, ZADD is refused as the first write of a script even where it adds nothing. ZREM is not.
redis.call('ZREM', permits, '')
for i = 2, #ARGV do
  redis.call('ZADD', permits, 'XX', 'GT', digits(now + lease), ARGV[i])
end
prolong(count, permits, notes, now, math.max(lease + 1, keep))
return 1
