-- Remove a latch. Its waiters learn that it was deleted.
-- KEYS[1] the count  KEYS[2] our record (see latch_set.lua)  KEYS[3] the permits of a Semaphore of that name (see lib/kind.lua)
-- ARGV[1] id of this call  ARGV[2] how long the record is kept, ms  ARGV[3] channel
-- ARGV[4] PUBLISH or SPUBLISH, '' to publish nothing
-- Reply: 1 removed; 0 there was none
-- Twice: a second run of the same call finds its id in the record, says 1 again and removes nothing.
-- uses: kind, record, wake
local key, record, permits = KEYS[1], KEYS[2], KEYS[3]
local call, keep, channel, publish = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local held = redis.call('HMGET', record, 'gen', 'until', 'deleted', 'set')
if held[3] == call then
  return 1
end
refuse_all_but_latch(key, permits, redis.call('EXISTS', key) == 1, held[2])
local gen = next_generation(held[1]) -- before anything is written
local removed = redis.call('DEL', key)
if held[2] then -- also of a latch that expired: that is forgotten now
  close_record(record, held[1])
end
if removed == 0 then
  return 0
end
redis.call('HSET', record, 'gen', gen, 'deleted', call, 'gone', held[4] or '')
redis.call('PEXPIRE', record, keep)
wake(publish, channel, '1')
return 1
