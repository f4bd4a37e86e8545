-- Set the count of a latch that has none: Redisson's trySetCount.
-- KEYS[1] the count  KEYS[2] our record, a hash: gen, one more with each latch and with its end; until, when the TTL is
--   over, server ms, 0: none, not there once the latch is known to be over; set, the call that set it; before, how the
--   one before ended and which that was, "open <set>" or "expired <set>"; opens, the message of its opening, there and
--   gone with until; deleted, the last deletion, and gone, which
--   latch that was; p:<participant>, "<gen> <call>"
-- KEYS[3] the permits of a Semaphore of that name (see lib/kind.lua)
-- ARGV[1] count  ARGV[2] TTL, ms (0: none)  ARGV[3] id of this call  ARGV[4] how long the record is kept, ms, with
--   a TTL for that and as long again, if that is longer
-- ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH, '' to publish nothing  ARGV[7] the message of its opening, never used again
-- Reply: 1 set; 0 the key is there, nothing done
-- Twice: a second run of the same call finds its id in the record, says 1 again and sets nothing, also if the latch has
--   been opened since.
-- uses: clock, kind, record, wake
local key, record, permits = KEYS[1], KEYS[2], KEYS[3]
local count, ttl, call, keep = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local channel, publish, opens = ARGV[5], ARGV[6], ARGV[7]
local held = redis.call('HMGET', record, 'gen', 'set', 'until')
if held[2] == call then
  return 1
end
local there = redis.call('EXISTS', key) == 1
refuse_all_but_latch(key, permits, there, held[3])
if there then
  return 0
end
local gen = next_generation(held[1])
-- For waiters of the latch before this one that look only now.
local before = ran_out(held[3]) and 'expired ' or 'open '
local till = '0'
if ttl > 0 then
  till = digits(clock() + ttl)
  keep = ttl + math.max(ttl, keep) -- so that a waiter that comes too late learns that it expired
  -- an instant and not a duration: it has to be the very one in the record
  redis.call('SET', key, count, 'PXAT', till)
else
  redis.call('SET', key, count)
end
redis.call('HSET', record, 'gen', gen, 'set', call, 'until', till, 'opens', opens, 'before', before .. (held[2] or ''))
redis.call('PEXPIRE', record, keep)
-- Participants of the latch that is over, and of the one before it, stay for their repeated calls. Each latch has two
-- generations: one while it is set, one when it is over.
if held[1] then
  local at = '0'
  repeat
    local part = redis.call('HSCAN', record, at, 'MATCH', 'p:*', 'COUNT', 500)
    local gone = {}
    for i = 1, #part[2], 2 do
      if (tonumber(string.match(part[2][i + 1], '^%d+') or '') or 0) < tonumber(gen) - 4 then
        gone[#gone + 1] = part[2][i]
      end
    end
    for i = 1, #gone, 500 do
      redis.call('HDEL', record, unpack(gone, i, math.min(i + 499, #gone)))
    end
    at = part[1]
  until at == '0'
end
wake(publish, channel, '1')
return 1
