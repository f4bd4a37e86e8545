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

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Have a lock whose owners have ends of their own last as long as the last of them. The dead hold nothing, and go. One
-- without an end has the lock's, which stays then.
local function expire(key, now)
  local all = redis.pcall('HGETALL', key)
  if all.err then
    return -- it went with its last owner, and its slot is being migrated
  end
  local last, owners, ends = 0, 0, 0
  for i = 1, #all, 2 do
    if string.sub(all[i], -1) ~= '!' then
      owners = owners + 1
    else
      local till = math.abs(tonumber(all[i + 1]))
      ends = ends + 1
      if till <= now then
        redis.call('HDEL', key, all[i], string.sub(all[i], 1, -2))
      elseif till > last then
        last = till
      end
    end
  end
  if last > 0 and ends >= owners then
    redis.call('PEXPIRE', key, string.format('%.0f', last - now))
  end
end

-- Take owners, those of list from first to last, out of a lock, each with its end. If any had one, others may be left that
-- have theirs. Returns how many were in it.
--
-- While the lock's slot is being migrated a key that has been emptied here may not be touched again: hence pcall once
-- something was removed. The first refusal is the caller's to have (the key is of another type).
local function remove(key, list, first, last)
  local removed, joined = 0, false
  for i = first, last do
    local gone = (removed > 0 and redis.pcall or redis.call)('HDEL', key, list[i], list[i] .. '!')
    if type(gone) == 'number' and gone > 0 then
      removed = removed + 1
      joined = joined or gone == 2
    end
  end
  if joined then
    expire(key, clock())
  end
  return removed
end
