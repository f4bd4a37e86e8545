-- A read-write lock in Redisson's layout, and a sorted set with the ends of its holds.
--
-- The lock is a hash: mode -> read or write; "<owner>" -> count of a reader; "<owner>:write" -> count of the writer. It
-- lasts as long as its last hold. Redisson looks for the end of a read hold in a key of its own, the timeout key
-- "{n}:<owner>:rwlock_timeout:<k>", k from 1 to the count. A reader of this library has the first of these keys only.
--
-- The set of ends is ours, so that no script has to read all readers: field of the hash -> end, server ms. A writer is
-- in the set only once it reads, too. Before that its end is the expiry of the lock.
-- uses: owners, raise, renewal, clock

-- Reports whether a field of the hash is the writer's.
local function is_writer_field(field)
  return string.sub(field, -6) == ':write'
end

-- Writes the end of a hold, and makes the set last as long. An end is only raised.
local function raise_end(ends, member, ends_at, now)
  local score = redis.call('ZSCORE', ends, member)
  if not score or tonumber(score) < ends_at then
    redis.call('ZADD', ends, digits(ends_at), member)
  end
  if redis.call('PTTL', ends) < ends_at - now then
    redis.call('PEXPIRE', ends, digits(ends_at - now))
  end
end

-- Renews a hold of a lock by the lock alone. Used while the slot is being migrated. Returns the reply: see renewal.lua.
local function renew_lock(lock, field, lease, now)
  local existing = redis.pcall('HEXISTS', lock, field)
  if existing ~= 1 then
    return existing == 0 and 0 or failed_reply(existing)
  end
  local reply = renewal_reply(lease, raise_expiry(lock, lease), nil, now)
  redis.call('HEXISTS', lock, field)
  return reply
end

-- Renews a hold by the set of ends alone. always: the hold has an end in the set, even if the end is missing now.
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

-- Returns nil and the hold's own end, if it has one, while a hold lasts. Otherwise returns the reply to its renewal,
-- which is never nil.
local function hold_ended(lock, ends, field, now)
  local existing, ends_at = redis.pcall('HEXISTS', lock, field), redis.pcall('ZSCORE', ends, field)
  if type(existing) == 'table' or type(ends_at) == 'table' then
    return failed_reply(type(existing) == 'table' and existing or ends_at)
  elseif existing == 0 or ends_at and expired(ends_at, now) then
    return 0
  end
  return nil, ends_at and tonumber(ends_at)
end

-- Removes the ends of a lock that does not exist, 1,000 at most. There are more only if another program has deleted the
-- lock. An end that remains belongs to no holder, and the next end of the lock may be late because of it.
local function remove_ends(ends)
  local left = redis.pcall('ZRANGE', ends, 0, 999)
  if not left.err and #left > 0 then
    redis.call('ZREM', ends, unpack(left))
  end
end

-- Deletes a lock that has lost its last hold, and gives a lock that has lost its writer to its readers. Returns whether
-- a waiter can acquire the lock now that could not before.
--
-- Here and in the functions below pcall is needed, because the caller may have emptied the set of ends: see is_missing.
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

-- Removes the holds whose own end has passed, although other holds keep the key. It removes MAX_EXPIRED at most, so
-- that no call is long. Returns the result of settle_removal, and whether there were any expired holds.
--
-- A process has one hold for all its readers, and each release and each request that has to wait calls this function.
-- So there are more expired holds only if very many processes died at once. Each dead field that is left counts as a
-- reader of Redisson's, whose end is not known. So the first waiter is notified to send a request, as it is when only
-- readers of Redisson's are left (hint_rw), and the request removes more:
--
--   600 readers die; reader A     server                                    writer W
--                                 queue: W <------------------------------- requests: read by A
--   A releases ---------------->  256 are removed; "0 0 W" to W ----------->
--                                 256 are removed; "0 0 W" to W <---------- requests: others read
--                                 88 are removed; granted <---------------- requests
--
-- * A is not the last living reader: the release of the last one notifies W.
-- * A message is lost: W polls.
-- * W does not wait, and is refused. Its request has removed 256, and one of the next requests is granted.
-- * A reader that would join a dead hold of its own process: see refuse_reader in rw_read.lua.
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

-- Sets the expiry of the lock to the end of its last hold. The lock never ends before a hold whose end is not known.
-- The ends of Redisson's readers are in keys whose names follow from the hash, and a script may read only the keys that
-- it is given:
--
--   client                                          server
--   rw_release ---------------------------------->  a reader of Redisson's is left, its end is not known: the lock
--   keeps its expiry <------------ 2: released, read the other ends
--   inspect ------------------------------------->
--   <---------- their fields and counts in the hash
--   rw_trim, with the keys that follow from these ->  the readers have the same counts: their ends are known. Otherwise
--   nothing is done
--
-- * A reader that comes meanwhile, or reads once more, sets the lock's expiry itself. A reader that leaves calls trim.
-- * The client is cut off before rw_trim, or the readers are too many: the lock ends late. Dead readers of Redisson's
--   keep the lock until then, and dead readers of this library until their own ends.
--
-- known: field of a reader of Redisson's -> its count, and the numbers of the first and the last of its KEYS. Returns
-- the result of settle_removal, and whether the caller should read the ends of Redisson's readers.
local MAX_TRIMMED = 64

local function trim(lock, ends, now, known)
  local left = redis.call('PTTL', lock)
  local last_end = redis.pcall('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')
  if last_end.err then
    return false
  end
  local ends_at = math.max(tonumber(last_end[2] or 0) - now, 1) -- see ttl_until
  if left <= ends_at + 5 or redis.call('HLEN', lock) > MAX_TRIMMED then -- both are whole ms, read at different instants
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
