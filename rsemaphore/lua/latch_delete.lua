-- Remove a latch. Its waiters learn that it was deleted.
-- KEYS[1] the count  KEYS[2] our record (see latch_set.lua)  KEYS[3] the permits of a Semaphore of that name (see
--   kind.lua)
-- ARGV[1] id of this call  ARGV[2] how long the record is kept, ms  ARGV[3] channel
-- ARGV[4] PUBLISH or SPUBLISH, '' to publish nothing
-- Reply: 1 removed; 0 no latch existed
-- Twice: a second run of the same call finds its id in the record, replies 1 again and removes nothing.
-- A user who lacks a right removes nothing: the rights are tried on the key of the permits, which does not exist (see
-- kind.lua).
-- uses: kind, record, wake
local key, record, permits = KEYS[1], KEYS[2], KEYS[3]
local call, keep, channel, publish = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local held = redis.call('HMGET', record, 'gen', 'until', 'deleted', 'set')
if held[3] == call then
  return 1
end
local existing = redis.call('EXISTS', key) == 1
refuse_all_but_latch(key, permits, existing, held[2])
if not existing then
  if held[2] then -- the latch has expired, and its record is closed
    close_record(record, held[1])
  end
  return 0
end
redis.call('DEL', permits)
redis.call('PEXPIRE', permits, keep)
close_record(record, held[1], 'deleted', call, 'gone', held[4] or '')
redis.call('DEL', key)
redis.call('PEXPIRE', record, keep)
wake(publish, channel, '1')
return 1
