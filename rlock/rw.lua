-- A read-write lock on Redisson's layout, and the ends of its holds beside it.
--
-- The lock is a hash: mode -> read or write; "<owner>" -> count of a reader; "<owner>:write" -> count of the writer. It
-- lasts as long as the last of its holds. Redisson looks for the end of a read hold in a key of its own, the timeout key
-- "{n}:<owner>:rwlock_timeout:<k>", k from 1 to the count; a reader of ours has the first, whatever its count.
--
-- The ends are a sorted set of ours, so that nobody has to go through all readers: field of the hash -> end, server ms;
-- of a writer only once it reads too, before that it is the lock's. "!<owner> <ms>" -> -ms until which a writer that
-- waits comes first, for so many ms at a time.

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Have the lock last for the lease, if it does not last longer or without end; 0 or less asks for nothing. It is a write
-- in any case: see acquire. Returns what was left.
local function raise(lock, lease)
  local left = redis.call('PTTL', lock)
  if left >= 0 and lease > 0 then
    redis.call('PEXPIRE', lock, math.max(left, lease))
  end
  return left
end

-- Enter an end, and have the set last as long. An end is only ever raised.
local function enter(ends, member, till, now)
  local score = redis.call('ZSCORE', ends, member)
  if not score or tonumber(score) < till then
    redis.call('ZADD', ends, string.format('%.0f', till), member)
  end
  if redis.call('PTTL', ends) < till - now then
    redis.call('PEXPIRE', ends, string.format('%.0f', till - now))
  end
end

-- The reply of a renewal: 1, and of one that asks for how long it is held (lease -1) the ms left besides, if there is an
-- end. left: of the key, as by PTTL. till: the hold's own end, if it has one.
local function verdict(lease, left, till, now)
  if lease >= 0 or left < 0 and not till then
    return 1
  end
  return 1 + math.max(1, math.min(left >= 0 and left or math.huge, till and tonumber(till) - now or math.huge))
end

-- The same where there or till, what was asked of the lock and of its ends, is an error.
local function failed(there, till)
  local err = type(there) == 'table' and there.err or till.err
  return string.find(err, 'WRONGTYPE', 1, true) and -2 or -3
end

-- See to a lock that has lost holds: without any it is gone, without its writer it is its readers'. Returns whether
-- somebody can acquire it now who could not before.
--
-- Here and in what follows a caller may have emptied the ends, hence pcall: see emptied.
local function settle(lock, ends, writer)
  if redis.call('HLEN', lock) <= 1 then
    redis.call('DEL', lock)
    if ends then
      redis.pcall('ZREMRANGEBYSCORE', ends, 0, '+inf')
    end
    return true
  end
  if writer then
    redis.call('HSET', lock, 'mode', 'read')
  end
  return writer
end

-- Take out the holds whose own end has passed, which keep nobody out any more though others keep the key. Returns what
-- settle does.
local function forget(lock, ends, now)
  redis.pcall('ZREMRANGEBYSCORE', ends, -now, '(0')
  local dead = redis.pcall('ZRANGEBYSCORE', ends, 0, now)
  if dead.err or #dead == 0 then
    return false
  end
  local writer = false
  for i, field in ipairs(dead) do
    redis.call('ZREM', ends, field)
    writer = remove(lock, dead, i, i) > 0 and string.sub(field, -6) == ':write' or writer
  end
  return settle(lock, ends, writer)
end

-- Give the lock the end of the last of its holds. It never ends before a hold of which the end is not known. Readers of
-- Redisson's have theirs in keys that only the hash names, as its own scripts find them too: all have to be gone through.
-- So not where they are many. The lock's end is late then, and Redisson's dead keep it until that; ours are forgotten by
-- their own ends. Returns what settle does.
local MANY = 64

local function trim(lock, ends, now)
  local left = redis.call('PTTL', lock)
  local last = redis.pcall('ZREVRANGE', ends, 0, 0, 'WITHSCORES')
  if last.err then
    return false
  end
  local till = math.max(tonumber(last[2] or 0) - now, 0)
  if left <= till + 5 or redis.call('HLEN', lock) > MANY then -- both count whole ms, not from the same instant
    return false
  end
  local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local all, dead = redis.call('HGETALL', lock), false
  for i = 1, #all, 2 do
    local field = all[i]
    if field ~= 'mode' and not redis.call('ZSCORE', ends, field) then
      if ours(field) or string.sub(field, -6) == ':write' then
        return false
      end
      local most = 0
      for k = 1, tonumber(all[i + 1]) do
        local own = redis.pcall('PTTL', prefix .. ':' .. field .. ':rwlock_timeout:' .. k)
        if type(own) ~= 'number' then
          return false
        end
        most = math.max(most, own)
      end
      if most == 0 then
        redis.call('HDEL', lock, field)
        dead = true
      end
      till = math.max(till, most)
    end
  end
  if dead and settle(lock, ends, false) then
    return true
  end
  if till < left then
    redis.call('PEXPIRE', lock, string.format('%.0f', till))
  end
  return false
end
