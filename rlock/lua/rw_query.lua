-- Look at one side of a read-write lock without changing it.
-- uses: clock, rw
-- KEYS[1] the lock  KEYS[2] its ends  ARGV[1] field, of a nameless owner '' or ':write', which says the side
-- Reply {holders of that side, count of this one, ms left (-1 without end, -2 that side is not held)}
-- Twice: reads only.
local lock, ends, field = KEYS[1], KEYS[2], ARGV[1]
local of_writer, now = writes(field), clock()
local mode = redis.call('HGET', lock, 'mode')
if not mode then
  return {0, 0, -2}
end
local left = redis.call('PTTL', lock)
local writer = mode == 'write' and 1 or 0
local holders = of_writer and writer or redis.call('HLEN', lock) - 1 - writer
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', ends, 0, now)) do
  if writes(dead) == of_writer and redis.call('HEXISTS', lock, dead) == 1 then
    holders = holders - 1
  end
end
if holders <= 0 then
  return {0, 0, -2}
end
if writer == 1 and left >= 0 then -- few: the writer, and what it reads
  local known = redis.call('ZREVRANGE', ends, 0, -1, 'WITHSCORES')
  for i = 1, #known, 2 do
    if writes(known[i]) == of_writer and tonumber(known[i + 1]) > now then
      left = math.min(left, known[i + 1] - now)
      break
    end
  end
end
local till = redis.call('ZSCORE', ends, field)
local count = tonumber(redis.call('HGET', lock, field) or 0)
if till and tonumber(till) <= now then
  count = 0
end
return {holders, count, left}
