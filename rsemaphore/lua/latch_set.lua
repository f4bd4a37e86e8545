-- Set the count of a latch without a count: Redisson's trySetCount.
-- KEYS[1] the count  KEYS[2] the record of this library, a hash:
--   gen        one more with each latch, and with its end
--   until      the end of the TTL, server ms, 0: none; missing once the latch is known to be over
--   set        the call that set the latch
--   before     how the latch before it ended, and the call that set that latch: "open <set>" or "expired <set>"
--   opens      the message of its opening; it exists together with until
--   deleted    the call of the last deletion
--   gone       the call that had set the latch which that deletion removed
--   p:<participant>  "<gen> <call>"
--   swept      the cursor from which participants of earlier latches are still to be removed
-- KEYS[3] the permits of a Semaphore of that name (see kind.lua)
-- ARGV[1] count  ARGV[2] TTL, ms (0: none)  ARGV[3] id of this call
-- ARGV[4] how long the record is kept, ms; with a TTL, for the TTL and then as long again, if that is longer
-- ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH, '' to publish nothing  ARGV[7] the message of its opening, never used
--   again
-- Reply: 1 set; 0 the latch exists, nothing is done
-- Twice: a second run of the same call finds its id in the record, replies 1 again and sets nothing, even if the latch
--   has been opened since.
-- A user who lacks a right sets nothing. The writes before the count do no harm without it: they sweep, and keep the
-- record. If the record is refused, the count is deleted. A count without its record would be Redisson's latch, which
-- never expires.
-- uses: clock, kind, record, wake
local key, record, permits = KEYS[1], KEYS[2], KEYS[3]
local count, ttl, call, keep = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local channel, publish, opens = ARGV[5], ARGV[6], ARGV[7]
local held = redis.call('HMGET', record, 'gen', 'set', 'until', 'swept')
if held[2] == call then
  return 1
end
local existing = redis.call('EXISTS', key) == 1
refuse_all_but_latch(key, permits, existing, held[3])
if existing then
  return 0
end
local gen = next_generation(held[1])
-- For waiters of the latch before this one whose next look comes only now.
local before = has_run_out(held[3]) and 'expired ' or 'open '
local ends_at = '0'
if ttl > 0 then
  ends_at = digits(clock() + ttl)
  keep = ttl + math.max(ttl, keep) -- so that a waiter that comes late learns that the latch expired
end
if held[1] then
  local cursor, parts = held[4] or '0', 0
  repeat
    cursor, parts = sweep(record, gen, cursor, 250), parts + 1
  until cursor == '0' or parts == 3
  note_sweep(record, held[4], cursor)
  redis.call('PEXPIRE', record, keep)
end
if ttl > 0 then
  -- an instant and not a duration: it must equal the instant in the record
  redis.call('SET', key, count, 'PXAT', ends_at)
else
  redis.call('SET', key, count)
end
local refused = write_record(record, not held[1], keep, 'gen', gen, 'set', call, 'until', ends_at, 'opens', opens,
  'before', before .. (held[2] or ''))
if refused then
  redis.call('DEL', key)
  return refused
end
wake(publish, channel, '1')
return 1
