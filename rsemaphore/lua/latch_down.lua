-- Count a latch down by one: Redisson's countDown, or once for each participant.
-- KEYS[1] the count  KEYS[2] our record (see latch_set.lua)  KEYS[3] the permits of a Semaphore of that name (see kind.lua)
-- ARGV[1] participant, '' for none  ARGV[2] id of this call  ARGV[3] how long a participant is remembered, ms
-- ARGV[4] how long the record of an open latch is kept at most, ms  ARGV[5] channel
-- ARGV[6] PUBLISH or SPUBLISH, '' to publish nothing
-- Reply {status, left}: 1 counted; 0 there is no count, the latch is open; 2 this participant was counted before;
--   3 the key holds no integer, nothing done; 4 the latch expired
-- Twice: with a participant a second run of the same call finds the call's id and counts nothing, also if the latch has
--   been opened and set again since. Without one it counts again, and is sent once.
local key, record, who, call, keep, rest, channel, publish = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local value = redis.call('GET', key)
local held = redis.call('HMGET', record, 'gen', 'until', 'p:' .. who)
local gen, till, mark = held[1] or '0', held[2], held[3]
refuse_all_but_latch(key, KEYS[3], value, till)
if value and till and till ~= '0' and redis.call('PTTL', key) == -1 then
  -- What was set with a TTL has gone, and a process that does not know the record has set this one.
  gen, till = string.format('%.0f', tonumber(gen) + 1), '0'
  redis.call('HDEL', record, 'until')
  redis.call('HSET', record, 'gen', gen, 'until', till)
end
local before = false
if who ~= '' and mark then -- "<gen> <call>"
  before = string.sub(mark, 1, #gen + 1) == gen .. ' '
  if string.sub(mark, -#call - 1) == ' ' .. call and not before then
    return {1, 0} -- counted by this very call, and that count is over
  end
end
-- A latch that somebody else opened (Redisson does not know the record) is over for the record, too.
local function over()
  if till then
    redis.call('HSET', record, 'gen', string.format('%.0f', tonumber(gen) + 1))
    redis.call('HDEL', record, 'until')
    if redis.call('PTTL', record) > rest then
      redis.call('PEXPIRE', record, rest)
    end
  end
end
if not value then
  if till and till ~= '0' then
    local time = redis.call('TIME')
    if time[1] * 1000 + math.floor(time[2] / 1000) >= tonumber(till) then
      return {4, 0}
    end
  end
  over()
  return {0, 0}
end
if value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then
  return {3, 0}
end
if before then
  return {2, tonumber(value)}
end
local left = redis.call('INCRBY', key, '-1')
if who ~= '' then
  redis.call('HSET', record, 'gen', gen, 'until', till or '0', 'p:' .. who, gen .. ' ' .. call)
  till = till or '0'
  if till == '0' and redis.call('PTTL', record) < keep then
    redis.call('PEXPIRE', record, keep)
  end
end
if left > 0 then
  return {1, left}
end
redis.call('DEL', key)
over()
if publish ~= '' then
  redis.pcall(publish, channel, '0')
end
return {1, 0}
