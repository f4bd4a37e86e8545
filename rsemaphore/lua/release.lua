-- Give permits back, and wake the waiters.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] 1: only if all are held  ARGV[4…] ids
-- Reply: how many of them were held, their leases not over; -1 not all, nothing given back
-- Twice: an id that is not out is not given back. Ids are never used again.
local count, permits, notes, channel, publish, all, first = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3] == '1', 4
local now = clock()
local held = 0
for i = first, #ARGV do
  local till = redis.call('ZSCORE', permits, ARGV[i])
  if till and tonumber(till) > now then
    held = held + 1
  end
end
if all and held < #ARGV - first + 1 then
  return -1
end
local back = 0
for i = first, #ARGV do
  if redis.call('ZREM', permits, ARGV[i]) == 1 then -- also one whose lease is over, if nobody has pruned it yet
    back = back + 1
    redis.call('HDEL', notes, ARGV[i])
  end
end
local freed = prune(count, permits, notes, now)
if back + freed > 0 then
  -- A count that is gone is made anew by the next acquisition: made here it would have no end, and be too small.
  if redis.call('EXISTS', count) == 1 then
    tell(publish, channel, redis.call('INCRBY', count, back))
  else
    tell(publish, channel, back + freed)
  end
end
return held
