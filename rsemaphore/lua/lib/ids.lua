-- The store of a Semaphore: an id for each permit that is held, in three keys. lib/verbs.lua describes stores.
--   count    the number of available permits: a string, Redisson's. Available and held permits add up to the capacity
--   permits  the permits that are held: a sorted set, id of 16 bytes -> end of its lease, server ms; Redisson's.
--            FOREVER: no end
--   notes    ours, often absent: a hash, "keep", "capacity" and "before" ("<call> <capacity>") after a resize, id -> label
-- uses: clock, integer, tenants

local FOREVER = 922337203685477

-- Permits of this library that were acquired together share the first 13 bytes of their ids, their base. The last three
-- bytes are their number. So a request names 1,000 permits by the base and the number.

-- Returns the id with number i of a base; i counts from 0.
local function id_of(base, i)
  return base .. string.char(math.floor(i / 65536), math.floor(i / 256) % 256, i % 256)
end

-- Returns the ids of n permits of a base from first on, 1,000 at most.
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

-- Scripts that write permits or take them back go on if the notes refuse a command, because the notes only inform: the
-- key is of another type then. A script that stopped there would have changed the permits and not the count. Then some
-- permits would be lost, or there would be too many.

-- Writes n permits of a base, with a label if there is one. The lease of a held permit is only raised. Returns how
-- many permits were not held before.
local function write_permits(permits, notes, base, n, ends_at, label)
  local new = 0
  for first = 0, n - 1, 1000 do
    local lease_args, label_args = {}, {}
    for _, id in ipairs(ids_of(base, n, first)) do
      lease_args[#lease_args + 1] = digits(ends_at)
      lease_args[#lease_args + 1] = id
      label_args[#label_args + 1] = id
      label_args[#label_args + 1] = label
    end
    new = new + redis.call('ZADD', permits, 'GT', unpack(lease_args))
    if label ~= '' then
      redis.pcall('HSET', notes, unpack(label_args))
    end
  end
  return new
end

-- Removes what the notes have of ids, 1,000 at most.
local function remove_notes(notes, ids)
  forget_tenants(notes, ids, function() return 1 end, ids)
end

-- Removes permits by their ids, 1,000 at most. Returns how many were held.
local function remove_permits(permits, notes, ids)
  local gone = redis.call('ZREM', permits, unpack(ids))
  if gone > 0 then
    remove_notes(notes, ids)
  end
  return gone
end

-- Reports whether permits are held that are not of this library: no script hands those over. If there are many, it
-- reads 16. Our ids have version 8 in their 7th byte, as a connection id has, and a low number at the end.
local function has_foreign_permits(permits)
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
local function stored_count(count)
  return require_integer(redis.call('GET', count), 'count of a semaphore')
end

-- Gives back permits whose lease is over, 1,000 at most, and returns their number. So a script is short however many
-- permits a dead process leaves. No request is for more than 1,000. The others count as held until the next script. A
-- waiter for them sends the next request at once, because store.ends finds an end that has passed.
local function give_back_expired(count, permits, notes, now)
  local expired_ids = redis.call('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if #expired_ids == 0 then
    return 0
  end
  -- The count comes first: a user without the right to it would remove permits that are then neither held nor free. If
  -- the removal is refused instead, the count is set back.
  local counted = redis.call('EXISTS', count) == 1
  if counted then
    redis.call('INCRBY', count, #expired_ids)
  end
  local gone = redis.pcall('ZREM', permits, unpack(expired_ids))
  if type(gone) == 'table' then
    if counted then
      redis.call('INCRBY', count, -#expired_ids)
    end
    error(gone)
  end
  remove_notes(notes, expired_ids)
  return #expired_ids
end

-- Returns by how much the count of a resized semaphore is less than the capacity in the notes requires; negative if it
-- is more. It is less if the permits alone were deleted, or if another program wrote the count. Only the set knows the
-- held permits, so the count follows from the set and the capacity (TestResize_PermitsDeleted_AllAreFree). A count with
-- an end is ours alone. A count without an end may be Redisson's, which sets and adds permits without the notes. Then
-- the capacity is known from nothing else, so the count stands and the result is 0
-- (TestSharedSemaphore_AnyWriter_ServersCapacityCounts).
--
-- The holders whose permits were deleted learn of it at their next renewal, which finds no id. Their release after the
-- correction of the count removes no id and adds nothing. A second run of their acquisition takes permits anew, if
-- enough are free. Redisson's own scripts change count and set in one step, so no script sees only one of the changes.
local function missing_from_count(count, resized, available, held_count)
  if not resized or redis.call('PTTL', count) < 0 then
    return 0
  end
  return resized - held_count - available
end

-- Makes the keys last for at least ms. A count without an end was made by Redisson, or for use with it, and keeps no
-- end. The notes always have an end.
local function extend_keys(count, permits, notes, now, ms)
  local count_left, permits_left, notes_left = redis.call('PTTL', count), redis.call('PTTL', permits), redis.call('PTTL', notes)
  if count_left >= 0 and count_left < ms then
    redis.call('PEXPIRE', count, ms)
  end
  local need = math.max(count_left, ms)
  if permits_left >= 0 and permits_left < need then
    redis.call('PEXPIRE', permits, need)
  elseif permits_left == -1 and count_left >= 0 then -- just made; or the count is younger, and held permits may last longer
    local ends_at = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2])
    if ends_at < FOREVER then
      redis.call('PEXPIRE', permits, math.max(need, ends_at - now + 1))
    end
  end
  if notes_left ~= -2 and notes_left < ms then
    redis.call('PEXPIRE', notes, ms)
  end
end

-- The part of the store that only reads.
local function ids_view(now, count, permits, notes)
  local view = {now = now, key = permits}

  -- Returns the capacity, nil if it is not known, and the number of held permits, without permits whose leases are
  -- over.
  function view.look()
    local available = stored_count(count)
    local over, held_count = redis.call('ZCOUNT', permits, '-inf', elapsed(now)), redis.call('ZCARD', permits)
    local capacity = require_integer(redis.call('HGET', notes, 'capacity'), 'capacity in the notes of a semaphore')
    if available then
      capacity = available + missing_from_count(count, capacity, available, held_count) + held_count
    end
    return capacity, held_count - over
  end

  -- Each permit is in the leases by its id, and counts 1.
  function view.member(id) return id end
  function view.id(member) return member end
  function view.text(id)
    if not is_of_tenant(id) then
      return '1 ' .. (redis.call('HGET', notes, id) or '')
    end
    local noted = redis.call('HMGET', notes, id, 't' .. id)
    return with_tenant('1', (read_tenant(noted[2])), noted[1] or '')
  end

  return view
end

-- The part of the store that raises leases.
local function ids_leases(now, count, permits, notes)
  local leases = {now = now, key = permits, record = notes, forever = FOREVER}
  function leases.member(id) return id end
  function leases.members(owner) return ids_of(read_owner(owner)) end
  function leases.recorded() return 1 end -- all ids in the leases are held
  function leases.prolong(ms) extend_keys(count, permits, notes, now, ms) end
  return leases
end

-- The store. shared: used with Redisson, so the capacity on the server counts, and the keys have no end.
local function ids_store(now, count, permits, notes, shared)
  local store = {now = now, record = notes, resized = shared, keep = 0, largest = 2147483647, most = 1000}
  local stored -- the stored count; nil: there is none
  local held_count -- the number of held permits, including expired permits that are not given back yet
  local may_count = false -- whether the user is known to have the right to change the count

  function store.open(capacity)
    stored = stored_count(count)
    store.freed = give_back_expired(count, permits, notes, now)
    held_count = redis.call('ZCARD', permits)
    local noted = redis.call('HMGET', notes, 'keep', 'capacity')
    local resized = require_integer(noted[2], 'capacity in the notes of a semaphore')
    store.keep = require_integer(noted[1], 'time in the notes of a semaphore') or 0
    store.resized = shared or resized ~= nil
    if stored then
      stored, may_count = stored + store.freed, store.freed > 0
      local missing = missing_from_count(count, resized, stored, held_count)
      if missing ~= 0 then
        stored = redis.call('INCRBY', count, digits(missing))
        store.freed = store.freed + math.max(0, missing) -- waiters are notified of these, too
      end
    end
    -- Without a count the semaphore was never used, or expired, or was deleted: held permits stay held.
    store.available = stored or (resized or capacity) - held_count
    store.total = store.available + held_count
  end

  -- Ends the script if the user may not change the count. The count is written after the permits, which would then be
  -- held and not counted. INCRBY without a number writes nothing, and fails only after the server has checked the
  -- right.
  function store.check()
    local counts = stored and not may_count and redis.pcall('INCRBY', count, '')
    if type(counts) == 'table' and not string.find(counts.err, 'integer', 1, true) then
      error(counts)
    end
    may_count = true
  end

  function store.resize(capacity)
    local more = capacity - store.total
    if stored then
      redis.call('INCRBY', count, digits(more))
      stored = stored + more
    end
    store.total, store.available, store.resized = capacity, store.available + more, true
    store.freed = store.freed + math.max(0, more)
  end

  -- An acquisition may be held in part: if its reply was lost, some ids may have been released by themselves. So put
  -- counts only the permits that were not held, and not n.
  function store.put(base, n, ends_at, label, share)
    store.check()
    store.available = store.available - write_permits(permits, notes, base, n, ends_at, label)
    if share then
      record_tenant(notes, ids_of(base, n), 1, share)
    end
  end

  function store.take(base, n)
    store.available = store.available + remove_permits(permits, notes, ids_of(base, n))
  end

  function store.known(base)
    return redis.call('ZSCORE', permits, id_of(base, 0)) and true
  end

  function store.raise(base, n, ends_at, label)
    local existing, lower = 0, false
    for _, score in ipairs(redis.call('ZMSCORE', permits, unpack(ids_of(base, n)))) do
      if score then
        existing, lower = existing + 1, lower or tonumber(score) < ends_at
      end
    end
    if existing < n then -- a part was released: all n permits are taken anew, or none
      store.check()
      store.take(base, n)
    elseif lower or label ~= '' then
      write_permits(permits, notes, base, n, ends_at, label)
    end
    return existing == n
  end

  function store.ends(n, free)
    local nth = redis.call('ZRANGE', permits, n - free - 1, n - free - 1, 'WITHSCORES')
    local ends_at = tonumber(nth[2] or FOREVER)
    return ends_at < FOREVER and math.max(1, ends_at - now) or -1
  end

  function store.members(owner) return ids_of(read_owner(owner)) end
  function store.member(id) return id end

  function store.give_back(ids, asked, kept, has_queue)
    local available = stored_count(count) -- before anything is written
    local held, gone, over = 0, {}, {}
    for i, ends_at in ipairs(redis.call('ZMSCORE', permits, unpack(ids))) do
      if ends_at then
        gone[#gone + 1] = ids[i]
        over[2 * #gone - 1], over[2 * #gone] = digits(now), ids[i]
        if i <= asked and not expired(ends_at, now) then
          held = held + 1
        end
      end
    end
    if kept < 0 and held < asked then
      return -1
    end
    local back = #gone > 0 and remove_permits(permits, notes, gone) or 0 -- also expired permits that are not given back yet
    if back > 0 and available then
      available = redis.pcall('INCRBY', count, back)
      if type(available) == 'table' then -- as in the common case
        redis.call('ZADD', permits, unpack(over))
        return 0, available
      end
    end
    store.back, store.freed = back, back + give_back_expired(count, permits, notes, now)
    if available then
      stored, may_count = available + store.freed - back, store.freed > 0
      store.total = has_queue and stored + redis.call('ZCARD', permits)
    end
    -- The next acquisition makes a missing count. A count that is made here would have no expiry, and be too small.
    store.available = stored or store.freed
    return held
  end

  -- Reports whether Redisson may release permits, of which no script learns.
  function store.foreign()
    return redis.call('PTTL', count) == -1 or has_foreign_permits(permits)
  end

  function store.count()
    if stored and store.available ~= stored then
      redis.call('INCRBY', count, digits(store.available - stored))
      stored = store.available
    end
  end

  function store.save(ms, least)
    store.count()
    if not stored and ms + least > 0 then
      redis.call('SET', count, digits(store.available), 'PX', digits(math.max(redis.call('PTTL', permits), ms, least)))
    end
    if ms > 0 then
      if shared then
        redis.call('PERSIST', count)
        redis.call('PERSIST', permits)
      end
      extend_keys(count, permits, notes, now, ms) -- no key expires before the last lease in it
    end
  end

  return store
end
