-- Count a latch down by one: Redisson's countDown, or once for each participant.
-- KEYS[1] the count  KEYS[2] our record (see latch_set.lua)  KEYS[3] the permits of a Semaphore of that name (see
--   lib/kind.lua)
-- ARGV[1] participant, '' for none  ARGV[2] id of this call  ARGV[3] how long a participant is remembered, ms
-- ARGV[4] how long the record of an open latch is kept at most, ms  ARGV[5] channel
-- ARGV[6] PUBLISH or SPUBLISH, '' to publish nothing
-- Reply {status, left}: 1 counted; 0 no count exists, the latch is open; 2 this participant was counted before;
--   3 the key holds no integer, nothing is done; 4 the latch expired
-- Twice: with a participant a second run of the same call finds the call's id and counts nothing, even if the latch
--   has been opened and set again since. A call without a participant would count again, and is sent once.
-- A user who lacks a right counts nothing, and leaves a valid record:
--   * The commands that prolong the record, or sweep it, come before the count.
--   * If the participant is refused by the record, the count is raised again.
--   * The rights to open the latch are tried on the key of the permits, which does not exist (see kind.lua). An
--     open latch cannot get its count back, and a count of 0 that stays could not be set again.
-- uses: integer, kind, record, wake
local key, record, permits = KEYS[1], KEYS[2], KEYS[3]
local participant, call, keep, rest, channel, publish = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local value = redis.call('GET', key)
local held = redis.call('HMGET', record, 'gen', 'until', 'p:' .. participant, 'opens', 'swept')
local gen, ends_at, mark, opens = held[1] or '0', held[2], held[3], held[4]
refuse_all_but_latch(key, permits, value, ends_at)
next_generation(gen) -- a generation that is not a number ends the script before anything is written
if value and ends_at and ends_at ~= '0' and redis.call('PTTL', key) == -1 then
  -- The latch that was set with a TTL is gone. A program that does not know the record has set this latch. If the
  -- script breaks off after HDEL, the record is still the one of the latch before, so the next call comes here again.
  gen, ends_at, opens = next_generation(gen), '0', nil
  redis.call('HDEL', record, 'opens')
  redis.call('HSET', record, 'gen', gen, 'until', ends_at)
end
local before = false
if participant ~= '' and mark then -- "<gen> <call>"
  before = string.sub(mark, 1, #gen + 1) == gen .. ' '
  if string.sub(mark, -#call - 1) == ' ' .. call and not before then
    return {1, 0} -- counted by an earlier run of this call, and that latch is over
  end
end
if not value then
  if has_run_out(ends_at) then
    return {4, 0}
  end
  if ends_at then -- another program opened the latch (Redisson does not know the record): the record is closed, too
    if redis.call('PTTL', record) > rest then
      redis.call('PEXPIRE', record, rest)
    end
    close_record(record, gen)
  end
  return {0, 0}
end
if not is_integer(value) then
  return {3, 0}
end
if before then
  return {2, tonumber(value)}
end
local left = tonumber(value) - 1
if participant == '' and left > 0 then
  return {1, redis.call('INCRBY', key, '-1')}
end
local ours = participant ~= '' or ends_at -- a latch with a record
local lasts = ours and redis.call('PTTL', record)
if left > 0 then
  local short = (ends_at or '0') == '0' and lasts < keep
  if short and held[1] then
    redis.call('PEXPIRE', record, keep)
  end
  if held[5] then -- for each new participant some earlier ones are checked, so these are removed however often the latch is set
    note_sweep(record, held[5], sweep(record, gen, held[5], 20))
  end
  redis.call('INCRBY', key, '-1')
  local refused = write_record(record, short and not held[1], keep, 'gen', gen, 'until', ends_at or '0',
    'p:' .. participant, gen .. ' ' .. call)
  if refused then
    redis.call('INCRBY', key, '1')
    return refused
  end
  return {1, left}
end
if ours then
  redis.call('DEL', permits)
  redis.call('PEXPIRE', permits, rest)
  if participant ~= '' then
    close_record(record, gen, 'p:' .. participant, gen .. ' ' .. call)
  else
    close_record(record, gen)
  end
end
redis.call('DEL', key)
if ours and (lasts < 0 or lasts > rest) then
  redis.call('PEXPIRE', record, rest)
end
-- The message that looks at this latch returned. It is published once, only here, and no look returns it afterwards. So
-- a waiter that receives it knows by the message alone that the latch has opened since its look.
wake(publish, channel, opens or '0')
return {1, 0}
