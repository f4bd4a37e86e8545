-- A read-write lock on Redisson's layout, and a sorted set of the ends of its holds.
--
-- The lock is a hash: mode -> read or write; "<owner>" -> count of a reader; "<owner>:write" -> count of the writer. It
-- lasts as long as the last of its holds. Redisson looks for the end of a read hold in a key of its own, the timeout key
-- "{n}:<owner>:rwlock_timeout:<k>", k from 1 to the count; a reader of ours has the first, whatever its count.
--
-- The ends are a sorted set of ours, so that no script goes through all readers: field of the hash -> end, server ms;
-- of a writer only once it reads too, before that it is the lock's.
-- uses: owners, raise, renewal, clock

-- Whether a field of the hash is the writer's.
local function is_writer_field(field)
  return string.sub(field, -6) == ':write'
end

-- Enter an end, and have the set last as long. An end is only ever raised.
local function raise_end(ends, member, ends_at, now)
  local score = redis.call('ZSCORE', ends, member)
  if not score or tonumber(score) < ends_at then
    redis.call('ZADD', ends, digits(ends_at), member)
  end
  if redis.call('PTTL', ends) < ends_at - now then
    redis.call('PEXPIRE', ends, digits(ends_at - now))
  end
end

-- Renew a hold of a lock by the lock alone, or by its ends alone: so while their slot is being migrated. always: the hold has
-- an end of its own in any case. Returns the reply.
local function renew_lock(lock, field, lease, now)
  local existing = redis.pcall('HEXISTS', lock, field)
  if existing ~= 1 then
    return existing == 0 and 0 or failed_reply(existing)
  end
  local reply = renewal_reply(lease, raise_expiry(lock, lease), nil, now)
  redis.call('HEXISTS', lock, field)
  return reply
end

local function renew_end(ends, field, lease, now, always)
  local ends_at = redis.pcall('ZSCORE', ends, field)
  if type(ends_at) == 'table' then
    return failed_reply(ends_at)
  elseif ends_at and expired(ends_at, now) then
    return 0
  elseif lease > 0 and (ends_at or always) then
    redis.call('ZREM', ends, '')
    raise_end(ends, field, now + lease, now)
  end
  return renewal_reply(lease, -1, ends_at and tonumber(ends_at), now)
end

-- Whether a hold is there to be renewed: nil and its own end, if it has one; or the reply if it is not.
local function hold_ended(lock, ends, field, now)
  local existing, ends_at = redis.pcall('HEXISTS', lock, field), redis.pcall('ZSCORE', ends, field)
  if type(existing) == 'table' or type(ends_at) == 'table' then
    return failed_reply(type(existing) == 'table' and existing or ends_at)
  elseif existing == 0 or ends_at and expired(ends_at, now) then
    return 0
  end
  return nil, ends_at and tonumber(ends_at)
end

-- Take out the ends of a lock that is gone, 1,000 at most: more are there only if another program has deleted the lock. Of others that
-- are left, whose owners hold nothing, the lock's next end may be late.
local function remove_ends(ends)
  local left = redis.pcall('ZRANGE', ends, 0, 999)
  if not left.err and #left > 0 then
    redis.call('ZREM', ends, unpack(left))
  end
end

-- See to a lock that has lost holds: without any it is gone, without its writer it is its readers'. Returns whether
-- a waiter can acquire it now that could not before.
--
-- Here and in what follows a caller may have is_missing the ends, hence pcall: see is_missing.
local function settle_removal(lock, ends, writer)
  if redis.call('HLEN', lock) <= 1 then
    redis.call('DEL', lock)
    if ends then
      remove_ends(ends)
    end
    return true
  end
  if writer then
    redis.call('HSET', lock, 'mode', 'read')
  end
  return writer
end

-- Take out the holds whose own end has passed, which keep no one out any more though others keep the key; GONE of them at most, so
-- that no call is long. Returns what settle_removal does, and whether there were any.
--
-- A process has one hold for all its readers, and each release and each request that has to wait looks. So there are more only if very many
-- processes died at once. Each dead field that is left counts as a reader of Redisson's, whose end is not known, so the first in line
-- is told to ask, as it is when readers of Redisson's alone are left (hint_rw), and goes on:
--
--   600 readers die; reader A     server                                    writer W
--                                 line: W <-------------------------------- asks: read by A
--   A releases ---------------->  256 are taken out; "0 0 W" to W ---------->
--                                 256 are taken out; "0 0 W" to W <-------- asks: others read
--                                 88 are taken out; granted <-------------- asks
--
-- * A is not the last that is alive: that one's release is the one to tell W.
-- * A message is lost: W polls, and goes on.
-- * A try of W that does not wait is refused. It has taken 256 out, and one of the next tries is granted.
-- * A reader that would join a dead hold of its own process: see kept_out in rw_read.lua.
local MAX_EXPIRED = 256

local function remove_expired(lock, ends, now)
  local dead = redis.pcall('ZRANGE', ends, 0, elapsed(now), 'BYSCORE', 'LIMIT', 0, MAX_EXPIRED)
  if dead.err or #dead == 0 then
    return false
  end
  local writer = false
  for i, field in ipairs(dead) do
    writer = remove_owners(lock, dead, i, i) > 0 and is_writer_field(field) or writer
  end
  redis.call('ZREM', ends, unpack(dead))
  return settle_removal(lock, ends, writer), true
end

-- Give the lock the end of the last of its holds. It never ends before a hold whose end is not known. Redisson's readers have
-- their ends in keys that only the hash names, and a script may look at no key but those that it is given:
--
--   client                                          server
--   rw_release ---------------------------------->  a reader of Redisson's is left, and its end is not known: the lock keeps its end
--   <-------------------- 2: released, look at them
--   inspect ------------------------------------->
--   <---------- their fields and counts in the hash
--   rw_trim, with the keys that follow from these ->  known: all readers have the counts of then, or nothing is done
--
-- One that comes in between, or reads once more, has set the lock's end itself; one that leaves gives it that of the others. If the client is
-- cut off before rw_trim, or they are too many, the lock's end is late: dead readers of Redisson's keep the lock until then, and ours only
-- until their own ends. known: of a reader of Redisson's the count, and the numbers of the first and the last of its KEYS.
-- Returns what settle_removal does, and whether Redisson's readers are to be looked at.
local MAX_TRIMMED = 64

local function trim(lock, ends, now, known)
  local left = redis.call('PTTL', lock)
  local last_end = redis.pcall('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')
  if last_end.err then
    return false
  end
  local ends_at = math.max(tonumber(last_end[2] or 0) - now, 1) -- see ttl_until
  if left <= ends_at + 5 or redis.call('HLEN', lock) > MAX_TRIMMED then -- both count whole ms, not from the same instant
    return false
  end
  local fields, dead, has_unknown_ends = redis.call('HGETALL', lock), {}, false
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field ~= 'mode' and not redis.call('ZSCORE', ends, field) then
      if is_ours(field) or is_writer_field(field) then
        return false
      end
      local reader, latest = known and known[field], 0
      if not reader or reader.count ~= fields[i + 1] then
        has_unknown_ends = true
      else
        for k = reader.first, reader.last do
          latest = math.max(latest, redis.call('PTTL', KEYS[k]))
        end
        if latest == 0 then
          dead[#dead + 1] = field
        end
        ends_at = math.max(ends_at, latest)
      end
    end
  end
  if has_unknown_ends then
    return false, true
  end
  if #dead > 0 then
    redis.call('HDEL', lock, unpack(dead))
    if settle_removal(lock, ends, false) then
      return true
    end
  end
  if ends_at < left then
    redis.call('PEXPIRE', lock, digits(ends_at))
  end
  return false
end
