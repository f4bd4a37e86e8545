-- The record of a latch, a hash in the slot of its count: see latch_set.lua.
-- uses: clock, integer

-- Returns the generation after gen, which may be missing.
local function next_generation(gen)
  return digits((require_integer(gen, 'generation of a latch') or 0) + 1)
end

-- Records that the latch of generation gen is over: from here on no look returns the message of its opening. The other
-- arguments are fields that are written in the same command. The first HDEL removes nothing. It fails for a user
-- without the right, before the record is half changed. A server without memory refuses neither this HDEL nor the
-- writes that follow it in the script.
local function close_record(record, gen, ...)
  redis.call('HDEL', record, '')
  redis.call('HSET', record, 'gen', next_generation(gen), ...)
  redis.call('HDEL', record, 'until', 'opens')
end

-- Writes fields of a record. A new record is kept for keep ms. Returns the error if the user lacks a right. A new
-- record is then deleted, because without an expiry it would stay for ever.
local function write_record(record, new, keep, ...)
  local written = redis.pcall('HSET', record, ...)
  if new and type(written) == 'number' then
    written = redis.pcall('PEXPIRE', record, keep)
    if type(written) == 'table' then
      redis.call('DEL', record)
    end
  end
  return type(written) == 'table' and written or nil
end

-- Reports whether the TTL of a latch without a count has run out, by the "until" of its record. In the last millisecond
-- of its TTL it counts as run out. Opening a latch in this library removes "until", so at worst a latch that Redisson
-- opened in that millisecond is reported as expired. The other mistake would release the waiters of an expired latch.
local function has_run_out(ends_at)
  return ends_at and ends_at ~= '0' and begun(ends_at, (clock()))
end

-- Removes participants of latches before the last two. It checks about n participants from a cursor on, so that a
-- script is short however many there are. The participants of the latch that is over, and of the latch before it, stay
-- for their repeated calls. Each latch has two generations: one while it is set, one when it is over. Returns the next
-- cursor, '0' at the end. A participant that stays for longer counts nothing, because its generation is over. On a
-- replica that was promoted, the cursor stands for other participants; the next latch finds the participants that were
-- missed.
local function sweep(record, gen, cursor, n)
  local page = redis.call('HSCAN', record, cursor, 'MATCH', 'p:*', 'COUNT', n)
  local outdated = {}
  for i = 1, #page[2], 2 do
    if (tonumber(string.match(page[2][i + 1], '^%d+') or '') or 0) < tonumber(gen) - 4 then
      outdated[#outdated + 1] = page[2][i]
    end
  end
  for i = 1, #outdated, 500 do
    redis.call('HDEL', record, unpack(outdated, i, math.min(i + 499, #outdated)))
  end
  return page[1]
end

-- Records the cursor from which the next script sweeps, if there is more to sweep. before: the cursor in the record.
local function note_sweep(record, before, cursor)
  if cursor ~= '0' then
    redis.call('HSET', record, 'swept', cursor)
  elseif before then
    redis.call('HDEL', record, 'swept')
  end
end
