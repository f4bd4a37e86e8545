-- Set the count of a latch that has none: Redisson's trySetCount.
-- KEYS[1] the count  KEYS[2] our record: gen, set, deleted, until, p:<participant> (see latch.go)
-- ARGV[1] count  ARGV[2] TTL, ms (0: none)  ARGV[3] id of this call  ARGV[4] how long the record is kept, ms, with
--   a TTL for that and as long again, if that is longer
-- ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH, '' to publish nothing
-- Reply: 1 set; 0 the key is there, nothing done
-- Twice: a second run of the same call finds its id in the record, says 1 again and sets nothing, also if the latch has
--   been opened since.
local key, record, count, ttl, call, keep, channel, publish = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
if redis.call('HGET', record, 'set') == call then
  return 1
end
if redis.call('EXISTS', key) == 1 then
  return 0
end
local gen = string.format('%.0f', (tonumber(redis.call('HGET', record, 'gen')) or 0) + 1)
local till = '0'
if ttl > 0 then
  local time = redis.call('TIME')
  till = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ttl)
  keep = ttl + math.max(ttl, keep) -- so that those who come too late learn that it expired
  -- an instant and not a duration: it has to be the very one in the record
  redis.call('SET', key, count, 'PXAT', till)
else
  redis.call('SET', key, count)
end
redis.call('HSET', record, 'gen', gen, 'set', call, 'until', till)
redis.call('PEXPIRE', record, keep)
if publish ~= '' then
  redis.pcall(publish, channel, '1')
end
return 1
