-- What the scripts on permits share. They have three keys for a semaphore:
--   count    how many permits are available: a string, Redisson's. With the permits that are out it adds up to the capacity.
--   permits  the permits that are out: a sorted set, id of 16 bytes -> end of its lease, server ms; Redisson's. FOREVER: no end.
--   notes    ours, often absent: a hash, "keep", "capacity" and "before" ("<call> <capacity>") after a resize, id -> label.
-- uses: clock, integer

local FOREVER = 922337203685477

-- Permits of this library that were acquired together have 13 bytes in common, their base, and are numbered in the last three of
-- their ids: so a request names 1,000 of them by the base and their number.

-- Returns id i of a base, from 0.
local function id_of(base, i)
  return base .. string.char(math.floor(i / 65536), math.floor(i / 256) % 256, i % 256)
end

-- Returns the ids from first on, 1,000 at most, of n with that base.
local function ids_of(base, n, first)
  local list = {}
  for i = first or 0, math.min(n, (first or 0) + 1000) - 1 do
    list[#list + 1] = id_of(base, i)
  end
  return list
end

-- Returns base and number of an owner, "<13 bytes><number>".
local function read_owner(owner)
  return string.sub(owner, 1, 13), tonumber(string.sub(owner, 14))
end

-- Returns the ids in a text, 16 bytes each without anything between.
local function split(ids)
  local list = {}
  for k = 1, #ids, 16 do
    list[#list + 1] = string.sub(ids, k, k + 15)
  end
  return list
end

-- Where permits are written and taken back, what the notes do not take is not a reason to fail: they are a key of another type then. They only
-- inform, and a script that broke off there would have changed the permits, and not the count: permits that no one has and no one gets,
-- or more of them than there are (TestAPermitBesideAKeyOfAnotherTypeIsNotLost).

-- Writes n permits of a base, with a label if there is one. The lease of one that is out is only ever raised. Returns how many were not out.
local function put_out(permits, notes, base, n, till, label)
  local new = 0
  for first = 0, n - 1, 1000 do
    local add, say = {}, {}
    for _, id in ipairs(ids_of(base, n, first)) do
      add[#add + 1] = digits(till)
      add[#add + 1] = id
      say[#say + 1] = id
      say[#say + 1] = label
    end
    new = new + redis.call('ZADD', permits, 'GT', unpack(add))
    if label ~= '' then
      redis.pcall('HSET', notes, unpack(say))
    end
  end
  return new
end

-- Takes permits out by their ids, 1,000 at most. Returns how many there were.
local function take_out(permits, notes, ids)
  local gone = redis.call('ZREM', permits, unpack(ids))
  if gone > 0 then
    redis.pcall('HDEL', notes, unpack(ids))
  end
  return gone
end

-- Returns the ms until enough leases are over for n permits where so many are free; -1: not known.
local function ends_for(permits, n, free, now)
  local nth = redis.call('ZRANGE', permits, n - free - 1, n - free - 1, 'WITHSCORES')
  local till = tonumber(nth[2] or FOREVER)
  return till < FOREVER and math.max(1, till - now) or -1
end

-- Returns how permits are written, taken back and waited for, as serve has it.
local function dealing(permits, notes, now)
  return function(base, n, till, label)
    return put_out(permits, notes, base, n, till, label)
  end, function(base, n)
    return take_out(permits, notes, ids_of(base, n))
  end, function(n, free)
    return ends_for(permits, n, free, now)
  end
end

-- Reports whether permits are out that are not of this library: no script hands those over. Of many, some are looked at. Ours have
-- version 8 in their 7th byte, as a connection id has, and a low number at the end.
local function foreign(permits)
  for _, from in ipairs({0, -8}) do
    for _, id in ipairs(redis.call('ZRANGE', permits, from, from + 7)) do
      if #id ~= 16 or math.floor(string.byte(id, 7) / 16) ~= 8 or string.byte(id, 14) ~= 0 then
        return true
      end
    end
  end
  return false
end

-- Returns the stored count, nil if there is none.
local function stored(count)
  return whole(redis.call('GET', count), 'count of a semaphore')
end

-- Ends the script if the user may not change the count, which is written when permits have been handed out: they would be out, and not
-- counted. INCRBY without a number writes nothing. It fails after the server has looked at the right.
local function may_count(count)
  local counts = redis.pcall('INCRBY', count, '')
  if type(counts) == 'table' and not string.find(counts.err, 'integer', 1, true) then
    error(counts)
  end
end

-- Gives back permits whose lease is over, 1,000 at most, and returns how many they were. So a script is short however many a process
-- leaves that dies. No request is for more than 1,000. What is left over counts as out until the next script, and a waiter for it is
-- notified to ask at once: ends_for finds ends that have passed.
local function prune(count, permits, notes, now)
  local dead = redis.call('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if #dead == 0 then
    return 0
  end
  -- The count comes first: if a user without the right to it removed permits, they would be gone, and not free. If the removal is refused
  -- instead, the count is set back.
  local counted = redis.call('EXISTS', count) == 1
  if counted then
    redis.call('INCRBY', count, #dead)
  end
  local gone = redis.pcall('ZREM', permits, unpack(dead))
  if type(gone) == 'table' then
    if counted then
      redis.call('INCRBY', count, -#dead)
    end
    error(gone)
  end
  redis.pcall('HDEL', notes, unpack(dead))
  return #dead
end

-- Returns what the count of a resized semaphore lacks of the capacity in the notes, negative if it has too much. It lacks some
-- if the permits alone were deleted, or if another program wrote the count. Only the set says which permits are out, so the
-- count follows from the set and the capacity (TestResize_PermitsDeleted_AllAreFree). A count with an end is
-- ours alone. A count without an end may be Redisson's, which sets and adds permits without the notes. Nothing else tells the
-- capacity then, so the count stands and the result is 0 (TestSharedSemaphore_AnyWriter_ServersCapacityCounts).
--
-- The holders whose permits were deleted learn of it at their next renewal, which finds no id. A release of theirs that
-- comes after the count was corrected removes no id and adds nothing. A second run of their acquisition takes permits anew, if
-- enough are there. Redisson's own scripts change count and set in one step, so neither is ever seen half done.
local function lacking(count, resized, available, out)
  if not resized or redis.call('PTTL', count) < 0 then
    return 0
  end
  return resized - out - available
end

-- Makes the keys last for at least ms. A count without an end was made so by Redisson, or to be shared with it,
-- and stays so. The notes always have an end.
local function prolong(count, permits, notes, now, ms)
  local left, ours, noted = redis.call('PTTL', count), redis.call('PTTL', permits), redis.call('PTTL', notes)
  if left >= 0 and left < ms then
    redis.call('PEXPIRE', count, ms)
  end
  local need = math.max(left, ms)
  if ours >= 0 and ours < need then
    redis.call('PEXPIRE', permits, need)
  elseif ours == -1 and left >= 0 then -- just made; or the count is younger, and what is out may last longer
    local till = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2])
    if till < FOREVER then
      redis.call('PEXPIRE', permits, math.max(need, till - now + 1))
    end
  end
  if noted ~= -2 and noted < ms then
    redis.call('PEXPIRE', notes, ms)
  end
end
