-- Functions of every lock that is a hash, owner -> count.
--
-- An owner that was joined, is a join, or is through with the lock has an end of its own beside it, "<owner>!" -> server
-- ms, with a minus if it is through (see join and keep). Whatever takes an owner out takes its end along: an end whose owner
-- is gone would keep the lock.

-- Whether an owner is one of this library: its connection id is a UUID of version 8. The whole shape, because what other
-- programs call themselves may be any text.
local function ours(owner)
  return string.match(owner, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d') ~= nil
end

-- Whether an owner, a count and a lease in ms are what a client may send. None sends another; one that came all the same
-- would leave a lock without an end (a lease that PEXPIRE refuses after HSET), or one that nobody can release. So a script
-- refuses it before it does anything. LONGEST: a double still counts single ms there, also after the clock's ms.
local LONGEST = 4503599627370496
local function fit(owner, count, lease)
  return owner ~= nil and owner ~= '' and count ~= nil and count >= 1 and count % 1 == 0 and
    lease ~= nil and lease >= 1 and lease <= LONGEST and lease % 1 == 0
end

-- Whether a key is not there, which this script may have emptied. While its slot is being migrated such a key may not even
-- be looked at any more.
local function emptied(key)
  return redis.pcall('EXISTS', key) ~= 1
end

-- Take owners, those of list from first to last, out of a lock, each with its end. If any had one, or "others" says so,
-- others may be left that have theirs: the lock lasts as long as the last of them then. The dead among them hold nothing,
-- and go. One without an end has the lock's, which stays. Returns how many were taken out.
--
-- While the lock's slot is being migrated a key that has been emptied here may not be touched again: hence pcall once
-- something was removed. The first refusal is the caller's to have (the key is of another type).
local function remove(key, list, first, last, others)
  local removed = 0
  for i = first, last do
    local gone = (removed > 0 and redis.pcall or redis.call)('HDEL', key, list[i], list[i] .. '!')
    if type(gone) == 'number' and gone > 0 then
      removed = removed + 1
      others = others or gone == 2
    end
  end
  if others then
    local all, time = redis.pcall('HGETALL', key), redis.call('TIME')
    local now, most, owners, ends = time[1] * 1000 + math.floor(time[2] / 1000), 0, 0, 0
    for i = 1, all.err and 0 or #all, 2 do
      if string.sub(all[i], -1) ~= '!' then
        owners = owners + 1
      else
        local till = math.abs(tonumber(all[i + 1]))
        ends = ends + 1
        if till <= now then
          redis.call('HDEL', key, all[i], string.sub(all[i], 1, -2))
        elseif till > most then
          most = till
        end
      end
    end
    if most > 0 and ends >= owners then
      redis.call('PEXPIRE', key, string.format('%.0f', most - now))
    end
  end
  return removed
end
