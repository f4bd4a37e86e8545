-- Count the holders of one side of a read-write lock, without holders whose end has passed.
-- uses: clock, rw
-- KEYS[1] the lock  KEYS[2] its ends  ARGV[1] the side, read or write
-- Reply: the number of holders. At most MAX_EXPIRED expired holders are left out; further ones count until the next
--   requests remove them.
-- Twice: reads only.
local lock, ends, of_writer, now = KEYS[1], KEYS[2], ARGV[1] == 'write', clock()
local mode = redis.call('HGET', lock, 'mode')
if not mode then
  return 0
end
local writer = mode == 'write' and 1 or 0
local holders = of_writer and writer or redis.call('HLEN', lock) - 1 - writer
for _, expired_field in ipairs(redis.call('ZRANGE', ends, 0, elapsed(now), 'BYSCORE', 'LIMIT', 0, MAX_EXPIRED)) do
  if is_writer_field(expired_field) == of_writer and redis.call('HEXISTS', lock, expired_field) == 1 then
    holders = holders - 1
  end
end
return holders
