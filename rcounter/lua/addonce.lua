-- Adds to a counter once for each id.
-- uses: clock, counter
--
-- KEYS[1]  the counter, a string
-- KEYS[2]  the ids of what was added, those of one part of 64, a hash: ':' and the id -> 'call;delta;sum'; 'from' -> when it was begun, in ms
-- KEYS[3]  likewise: of the two the one begun later takes new ids, the other has those of before
-- ARGV[1…4] as for add.lua
-- ARGV[5]  id of this call
-- ARGV[6]  the id
-- ARGV[7]  for how many ms an id is remembered at least
-- ARGV[8]  which part this is, from 0
--
-- Replies  {0, sum}      added, by this call
--          {1, value}    as add.lua: not added, and not remembered, since it may change
--          {2, value}    likewise
--          {3, sum}      added before, by another call
--          {4, delta}    the id stands for another delta: not added
--
-- Safe to run twice: the second run finds the id, with the id of its own call.
--
-- Two hashes alternate. Once the later one is as old as an id must be remembered, every id of the other is older than that. The
-- other is then emptied, and takes the new ids. So an id is remembered for up to twice that time, and needs no timer. The hash is
-- unlinked, so the server frees it in the background. When no caller adds any more, the hashes expire, which blocks the server.
-- So the parts that were filled at one time end one after the other, up to a second apart. That second is added to twice the
-- time, not subtracted: otherwise an id that is added after nearly once the time would find too little left, the end would be
-- moved, and the earlier ids would be kept for three times as long.
local key, young, old, call, id, keep = KEYS[1], KEYS[2], KEYS[3], ARGV[5], ':' .. ARGV[6], tonumber(ARGV[7])

local a, b = redis.call('HMGET', young, 'from', id), redis.call('HMGET', old, 'from', id)
local record = a[2] or b[2]
if record then
  local by, delta, sum = record:match('^([^;]*);(%-?%d+);(%-?%d+)$')
  if not by or #delta > 20 or #sum > 20 then return redis.error_reply('WRONGTYPE the ids of a counter are something else') end
  if delta ~= ARGV[1] then return {4, delta} end
  return {by == call and 0 or 3, sum}
end

local value, now = redis.call('GET', key), clock()
local from, before = tonumber(a[1] or '') or -1, tonumber(b[1] or '') or -1
if before > from then
  young, old = KEYS[3], KEYS[2]
  from = before
end
local fresh = from < 0 or expired(from + keep, now)
local ends = not fresh and redis.call('PTTL', young) >= keep
if fresh then young = old end

-- All is read by now. The counter is written first, because a server without memory refuses that, and the removal of ids it would not
-- refuse. If the id is refused, as for want of a right, the sum is set back: each try would add again otherwise.
local r = add(key, value, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if r[1] ~= 0 then return r end
local written, ttl = call .. ';' .. ARGV[1] .. ';' .. r[2], digits(2 * keep + math.floor(ARGV[8] * math.min(1000, keep / 128)))
local done
if fresh then
  done = redis.pcall('UNLINK', young)
  if type(done) == 'number' then done = redis.pcall('HSET', young, 'from', digits(now), id, written) end
  if type(done) == 'number' then
    done = redis.pcall('PEXPIRE', young, ttl)
    if type(done) == 'table' then redis.call('UNLINK', young) end
  end
else
  done = ends or redis.pcall('PEXPIRE', young, ttl)
  if type(done) ~= 'table' then done = redis.pcall('HSET', young, id, written) end
end
if type(done) == 'table' then
  redis.call('SET', key, value or ARGV[2], 'KEEPTTL')
  return done
end
return r
