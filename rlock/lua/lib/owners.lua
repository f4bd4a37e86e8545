-- The owners of a lock, and locks that are a hash: owner -> count.
-- uses: clock
--
-- An owner that was joined, that joined another owner, or that was released by UnlockAfter has a field with an end of
-- its own, "<owner>!" -> server ms. The ms of a released owner have a minus (see join and keep). Every script that
-- removes an owner also removes its end, by "remove". An end without its owner would keep a lock that no process holds
-- for a whole lease, and after UnlockAfter even ForceUnlock could not free it (TestJoin_HoldOfAnyKind_LeavesNothing,
-- TestForceUnlock_KeptByUnlockAfter_IsFree).

-- Reports whether an owner is of this library (TestOwners_InLuaAndGo_AreRecognizedAlike): its connection id is a UUID
-- of version 8, a number follows, and perhaps a label. The function checks the whole shape, like lease.Ours, because an
-- owner of another program may be any text.
local function is_ours(owner)
  local label = string.match(owner, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+(.*)$')
  return label ~= nil and not string.find(owner, '^[^:]*%u') and (label == '' or string.find(label, '^:[^!{}]*$') ~= nil)
end

-- Returns the fields of a hash and their values, or an error, and whether there are more fields. Only a hash of more
-- than 1,000 fields may have more: a lock has one owner, and the owners that joined it.
local function fields_of(key)
  local page = redis.pcall('HSCAN', key, 0, 'COUNT', 1000)
  if page.err then
    return page, false
  end
  return page[2], page[1] ~= '0'
end

-- Reports whether an owner in a hash is of another program, whose release hands nothing over. If or_kept is set, also
-- whether an owner is kept until the end of its lease (keep.lua), which hands nothing over either.
local function held_by_other_program(key, or_kept)
  local fields = fields_of(key)
  for i = 1, fields.err and 0 or #fields, 2 do
    if string.sub(fields[i], -1) == '!' then
      if or_kept and string.byte(fields[i + 1]) == 45 then
        return true
      end
    elseif fields[i] ~= 'mode' and not is_ours((string.gsub(fields[i], ':write$', ''))) then
      return true
    end
  end
  return false
end

-- A lock of another kind may have the name, while a service moves from one kind to another: a string (a mutex of Plain,
-- redsync, bsm/redislock or rueidislock), or a hash (all other kinds, and Redisson). The scripts check this only after
-- a command has refused the key because of its type. A lock of another kind excludes an owner like a lock of the same
-- kind. Any other key stays an error. A lock has an expiry, so a key without one is taken for other data. left is the
-- rest of the key's expiry, ms. Both functions return 2 if the holder is of this library, 3 if it is not, and nil if
-- the key is not a lock.
local function string_holder(key, left)
  local owner = left >= 0 and redis.pcall('GET', key)
  if type(owner) == 'string' then
    return is_ours(owner) and 2 or 3
  end
end

-- A hash may have any number of fields, so only some are checked. Each of them must be a field of a lock.
local function hash_holder(key, left)
  local page = left >= 0 and redis.pcall('HSCAN', key, 0, 'COUNT', 16)
  if not page or page.err or #page[2] == 0 then
    return nil
  end
  local kind = 2
  for i = 1, #page[2], 2 do
    local field = page[2][i]
    if field ~= 'mode' and not is_ours((string.gsub(string.gsub(field, '!$', ''), ':write$', ''))) then
      if not string.find(field, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d') then
        return nil
      end
      kind = 3
    end
  end
  return kind
end

-- Reports whether a client may send the owner and the lease in ms. No client of this library sends others. If they came
-- all the same, they would leave a lock without an expiry (PEXPIRE refuses the lease after HSET), or a lock that no
-- process can release. So a script refuses them before it writes. Up to MAX_LEASE a double counts single ms, even after
-- the clock's ms are added.
local MAX_LEASE = 4503599627370496
local function is_valid(owner, lease)
  return owner ~= nil and owner ~= '' and lease ~= nil and lease >= 1 and lease <= MAX_LEASE and lease % 1 == 0
end

-- Returns the error for an owner or lease that no client may send; nil if a client may send them.
local function validation_error(owner, lease)
  if not is_valid(owner, lease) then
    return redis.error_reply('ERR owner or lease is not valid')
  end
end

-- Returns the reply to an acquire request that no client may send, or that comes too late. Otherwise it returns nil,
-- and the server's time in ms and in µs.
local function check_request(owner, lease, notafter)
  local refusal = validation_error(owner, lease)
  if refusal then
    return refusal
  end
  local now, us = clock()
  if late(notafter, now) then
    return {2, 0, now}
  end
  return nil, now, us
end

-- Reports whether a key is missing, perhaps because this script removed its last field. While its slot is being
-- migrated, the script may not even read such a key any more.
local function is_missing(key)
  return redis.pcall('EXISTS', key) ~= 1
end

-- Returns the instant in an owner's end, without the minus; nil if the text is not an end. An owner without an end has
-- the lock's end.
local function read_end(text)
  local ms = string.match(text or '', '^%-?(%d+)$')
  return ms and #ms < 17 and tonumber(ms) or nil
end

-- Removes the owners list[first] to list[last] from a lock, each with its end. Other owners with ends of their own may
-- remain, if a removed owner had an end, or if "others" is set. The lock then lasts as long as the last of their ends,
-- and owners whose end is over are removed. The lock's end also counts for an owner without an end of its own, so it
-- stays. If there are more than 1,000 owners, some are checked, and the lock keeps its end. Returns the number of
-- removed owners.
--
-- While the lock's slot is being migrated, the script may not touch a key that it has emptied: hence pcall after the
-- first removal. The first refusal (the key is of another type) goes to the caller.
local function remove_owners(key, list, first, last, others)
  local removed = 0
  for i = first, last do
    local deleted = redis.pcall('HDEL', key, list[i], list[i] .. '!')
    if removed == 0 and type(deleted) ~= 'number' then
      return redis.call('HDEL', key, list[i], list[i] .. '!')
    elseif type(deleted) == 'number' and deleted > 0 then
      removed = removed + 1
      others = others or deleted == 2
    end
  end
  if others then
    local fields, has_more = fields_of(key)
    local now = clock()
    local latest, owners, ends = 0, 0, 0
    for i = 1, fields.err and 0 or #fields, 2 do
      if string.sub(fields[i], -1) ~= '!' then
        owners = owners + 1
      else
        local ends_at = read_end(fields[i + 1])
        ends = ends + (ends_at and 1 or 0)
        if not ends_at then
          redis.call('HDEL', key, fields[i])
        elseif expired(ends_at, now) then
          redis.call('HDEL', key, fields[i], string.sub(fields[i], 1, -2))
        elseif ends_at > latest then
          latest = ends_at
        end
      end
    end
    if latest > 0 and ends >= owners and not has_more then
      redis.call('PEXPIRE', key, ttl_until(latest, now))
    end
  end
  return removed
end

-- Sets the expiry of a lock that was just made. If the user may not run PEXPIRE, the lock is deleted, and the script
-- ends: otherwise a holder that crashes would keep a lock without an expiry for ever.
local function set_expiry(lock, lease)
  local set = redis.pcall('PEXPIRE', lock, lease)
  if type(set) == 'table' then
    redis.call('DEL', lock)
    error(set)
  end
end
