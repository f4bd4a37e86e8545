-- What the scripts on permits share. They have three keys for a semaphore:
--   count    how many permits are available: a string, Redisson's. With the permits that are out it adds up to the capacity.
--   permits  the permits that are out: a sorted set, id of 16 bytes -> end of its lease, server ms; Redisson's. FOREVER: no end.
--   notes    ours, often absent: a hash, "keep", "capacity" and "before" ("<call> <capacity>") after a resize, id -> label.
-- uses: clock

local FOREVER = 922337203685477

-- Returns the ids in a text, 16 bytes each without anything between.
local function split(ids)
  local list = {}
  for k = 1, #ids, 16 do
    list[#list + 1] = string.sub(ids, k, k + 15)
  end
  return list
end

-- Returns the stored count, nil if there is none.
local function stored(count)
  local text = redis.call('GET', count)
  local n = text and tonumber(text)
  if text and not n then
    error('WRONGTYPE the count of a semaphore is not a number')
  end
  return n
end

-- Gives back the permits whose lease is over, and returns how many they were.
local function prune(count, permits, notes, now)
  local dead = redis.call('ZRANGE', permits, '-inf', digits(now), 'BYSCORE')
  for i = 1, #dead, 1000 do
    redis.call('ZREM', permits, unpack(dead, i, math.min(i + 999, #dead)))
    redis.call('HDEL', notes, unpack(dead, i, math.min(i + 999, #dead)))
  end
  if #dead > 0 and redis.call('EXISTS', count) == 1 then
    redis.call('INCRBY', count, #dead)
  end
  return #dead
end

-- Returns what the count of a resized semaphore lacks of the capacity in the notes, negative if it has too much. It lacks some
-- if the permits alone were deleted, or if another program wrote the count. Only the set says which permits are out, so the
-- count follows from the set and the capacity (TestAResizedSemaphoreWhosePermitsAreDeletedHasAllOfThem). A count with an end is
-- ours alone. A count without an end may be Redisson's, which sets and adds permits without the notes. Nothing else tells the
-- capacity then, so the count stands and the result is 0 (TestOfASharedSemaphoreTheServersCapacityCountsWhoeverSetIt).
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
