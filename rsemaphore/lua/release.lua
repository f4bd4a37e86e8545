-- Give permits back, and wake the waiters.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV[1] ids, 16 bytes each without anything between  ARGV[2] 1: only if all are held  ARGV[3] channel
-- ARGV[4] PUBLISH or SPUBLISH
-- Reply: how many of them were held, their leases not over; -1 not all, nothing given back
-- Twice: an id that is not out is not given back. Ids are never used again.
-- uses: clock, permits, wake
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
local ids, all, channel, publish = split(ARGV[1]), ARGV[2] == '1', ARGV[3], ARGV[4]
local now = clock()
local held = 0
for _, id in ipairs(ids) do
  local till = redis.call('ZSCORE', permits, id)
  if till and tonumber(till) > now then
    held = held + 1
  end
end
if all and held < #ids then
  return -1
end
local back = 0
for _, id in ipairs(ids) do
  if redis.call('ZREM', permits, id) == 1 then -- also one whose lease is over, if nobody has pruned it yet
    back = back + 1
    redis.call('HDEL', notes, id)
  end
end
local freed = prune(count, permits, notes, now)
if back + freed > 0 then
  -- A count that is gone is made anew by the next acquisition: made here it would have no end, and be too small.
  if redis.call('EXISTS', count) == 1 then
    wake_for(publish, channel, redis.call('INCRBY', count, back))
  else
    wake_for(publish, channel, back + freed)
  end
end
return held
