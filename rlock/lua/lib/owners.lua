-- Owners of a lock, and of locks that are a hash: owner -> count.
-- uses: clock
--
-- An owner that was joined, is a join, or is done with the lock has a field with an end of its own, "<owner>!" -> server
-- ms, with a minus if it is done with it (see join and keep). Whatever takes an owner out takes its end along, and does so by
-- remove: an end whose owner is gone would keep a lock that no one holds, for a lease, and after UnlockAfter even ForceUnlock
-- could not free it (TestJoin_HoldOfAnyKind_LeavesNothing, TestForceUnlock_KeptByUnlockAfter_IsFree).

-- Whether an owner is one of this library (TestOwners_InLuaAndGo_AreRecognizedAlike): its connection id is a UUID of version 8, a number follows, and perhaps a label.
-- The whole shape, as lease.Ours has it, because what other programs call themselves may be any text.
local function ours(owner)
  local label = string.match(owner, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+(.*)$')
  return label ~= nil and not string.find(owner, '^[^:]*%u') and (label == '' or string.find(label, '^:[^!{}]*$') ~= nil)
end

-- The fields of a hash and their values, or an error; and whether there are more, which there are of 1,000 only: a lock has one owner,
-- and those that have joined it.
local function fields_of(key)
  local page = redis.pcall('HSCAN', key, 0, 'COUNT', 1000)
  if page.err then
    return page, false
  end
  return page[2], page[1] ~= '0'
end

-- Whether an owner that a hash names is another program's: its release hands nothing over.
local function held_by_others(key)
  local all = fields_of(key)
  for i = 1, all.err and 0 or #all, 2 do
    if all[i] ~= 'mode' and string.sub(all[i], -1) ~= '!' and not ours((string.gsub(all[i], ':write$', ''))) then
      return true
    end
  end
  return false
end

-- A name may be held by a lock of another kind, while a service moves from one kind to another: by a mutex that is a string (Plain's;
-- redsync's, bsm/redislock's, rueidislock's), or by a hash (all other kinds, and Redisson). That is asked for only when a command has
-- refused the key because of its type. A lock of another kind keeps out, as one of the same kind does; anything else stays an error. A lock has an
-- end: what has none is taken for other data. left is what is left of the key, ms. They return 2 if the holder is of this library, 3
-- if it is not; nil: it is not a lock.
local function string_holder(key, left)
  local owner = left >= 0 and redis.pcall('GET', key)
  if type(owner) == 'string' then
    return ours(owner) and 2 or 3
  end
end

-- A hash may have any number of fields, so a few are looked at: each must be one that a lock has.
local function hash_holder(key, left)
  local some = left >= 0 and redis.pcall('HSCAN', key, 0, 'COUNT', 16)
  if not some or some.err or #some[2] == 0 then
    return nil
  end
  local kind = 2
  for i = 1, #some[2], 2 do
    local field = some[2][i]
    if field ~= 'mode' and not ours((string.gsub(string.gsub(field, '!$', ''), ':write$', ''))) then
      if not string.find(field, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d') then
        return nil
      end
      kind = 3
    end
  end
  return kind
end

-- Whether an owner and a lease in ms are what a client may send. None sends another; one that came all the same
-- would leave a lock without an end (a lease that PEXPIRE refuses after HSET), or one that no one can release. So a script
-- refuses it before it does anything. LONGEST: a double still counts single ms there, also after the clock's ms.
local LONGEST = 4503599627370496
local function fit(owner, lease)
  return owner ~= nil and owner ~= '' and lease ~= nil and lease >= 1 and lease <= LONGEST and lease % 1 == 0
end

-- The reply to a request that no client may send; nil: this one may be sent.
local function unfit(owner, lease)
  if not fit(owner, lease) then
    return redis.error_reply('ERR owner or lease is nothing that can be asked for')
  end
end

-- The reply to a request to acquire that no client may send, or that comes too late; nil: go on. Then the server's time in
-- ms and in µs.
local function refuse(owner, lease, notafter)
  local bad = unfit(owner, lease)
  if bad then
    return bad
  end
  local now, us = clock()
  if late(notafter, now) then
    return {2, 0, now}
  end
  return nil, now, us
end

-- Whether a key is not there, which this script may have emptied. While its slot is being migrated such a key may not even
-- be looked at any more.
local function emptied(key)
  return redis.pcall('EXISTS', key) ~= 1
end

-- The instant in an owner's end, without the minus; nil: it is none. An owner without one has the lock's.
local function read_end(text)
  local ms = string.match(text or '', '^%-?(%d+)$')
  return ms and #ms < 17 and tonumber(ms) or nil
end

-- Take owners, those of list from first to last, out of a lock, each with its end. If any had one, or "others" says so,
-- others may be left that have theirs: the lock lasts as long as the last of them then. The dead among them hold nothing,
-- and go. One without an end has the lock's, which stays. Of more than 1,000 owners some are looked at, and the lock keeps its
-- end. Returns how many were taken out.
--
-- While the lock's slot is being migrated a key that has been emptied here may not be touched again: hence pcall once
-- something was removed. The first refusal is the caller's to have (the key is of another type).
local function remove(key, list, first, last, others)
  local removed = 0
  for i = first, last do
    local gone = redis.pcall('HDEL', key, list[i], list[i] .. '!')
    if removed == 0 and type(gone) ~= 'number' then
      return redis.call('HDEL', key, list[i], list[i] .. '!')
    elseif type(gone) == 'number' and gone > 0 then
      removed = removed + 1
      others = others or gone == 2
    end
  end
  if others then
    local all, more = fields_of(key)
    local now = clock()
    local most, owners, ends = 0, 0, 0
    for i = 1, all.err and 0 or #all, 2 do
      if string.sub(all[i], -1) ~= '!' then
        owners = owners + 1
      else
        local till = read_end(all[i + 1])
        ends = ends + (till and 1 or 0)
        if not till then
          redis.call('HDEL', key, all[i])
        elseif expired(till, now) then
          redis.call('HDEL', key, all[i], string.sub(all[i], 1, -2))
        elseif till > most then
          most = till
        end
      end
    end
    if most > 0 and ends >= owners and not more then
      redis.call('PEXPIRE', key, lasting(most, now))
    end
  end
  return removed
end

-- Gives a lock that was just made its end. If the user has no right to that, the lock is gone again, and the script ends: a holder that
-- crashes would keep a lock without an end for ever.
local function set_end(lock, lease)
  local set = redis.pcall('PEXPIRE', lock, lease)
  if type(set) == 'table' then
    redis.call('DEL', lock)
    error(set)
  end
end
