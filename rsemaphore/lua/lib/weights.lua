-- The store of a WeightedSemaphore: a record for each acquisition that is held, in two keys. lib/verbs.lua describes
-- stores.
--   main    a hash: "capacity"; "used", the sum of all held weights; after a resize "keep" and "before"
--           ("<call> <capacity>"); after a revision "keep" and "revised" ("<revision> <capacity>"); and for
--           each held acquisition: its base of 13 bytes -> "<weight> <label>"
--   leases  a sorted set: base -> the end of its lease, server ms
-- A number may be up to 2^53-1, to which a double is exact. No sum here is larger: used and available weight add up to
-- the capacity, and after a smaller capacity the available weight is negative.
-- An acquisition is one field and one member whatever its weight, so nothing here takes longer for a large weight.
-- uses: clock, integer, tenants

-- Returns the weight and the label in the text of an acquisition; nil without a text.
local function read_weight(text)
  if text then
    local n, label = string.match(text .. ' ', '^(%d+) (.-) ?$')
    return require_integer(n or text, 'weight of an acquisition'), label
  end
end

-- Returns the weight and the label of the acquisition that is held under a base; nil if no acquisition is.
local function weight_of(main, base)
  return read_weight(redis.call('HGET', main, base))
end

-- Returns the member of the leases for an id, its base. An acquisition has one id, the first of its base. Any other id
-- belongs to no acquisition: it is returned itself, and is no base.
local function base_of(id)
  return string.sub(id, 14) == '\0\0\0' and string.sub(id, 1, 13) or id
end

-- Makes the keys last for at least ms.
local function extend_weight_keys(main, leases, ms)
  for _, key in ipairs({main, leases}) do
    local left = redis.call('PTTL', key)
    if left ~= -2 and left < ms then
      redis.call('PEXPIRE', key, digits(ms))
    end
  end
end

-- Gives acquisitions back, 1,000 at most, whether or not they are over. Returns their weight, which is subtracted from
-- "used".
--
-- "used" is written here, because a script that breaks off later would leave weights that are neither held nor free.
-- ZREM comes first, because a server without memory refuses HSET as the first write. Without a right the weights stay
-- held, and their leases are over: a user who has the right gives them back.
local function give_back(main, leases, bases, used, now)
  local freed, back, weight_by_base = 0, {}, {}
  for i, text in ipairs(redis.call('HMGET', main, unpack(bases))) do
    if text then
      weight_by_base[bases[i]] = read_weight(text)
      freed = freed + weight_by_base[bases[i]]
      back[#back + 1] = digits(now - 1)
      back[#back + 1] = bases[i]
    end
  end
  redis.call('ZREM', leases, unpack(bases))
  local done = redis.pcall('HSET', main, 'used', digits(used - freed))
  if type(done) == 'number' then
    done = redis.pcall('HDEL', main, unpack(bases))
    if type(done) == 'table' then
      redis.call('HSET', main, 'used', digits(used))
    end
  end
  if type(done) == 'table' then
    if #back > 0 then
      redis.call('ZADD', leases, unpack(back))
    end
    error(done)
  end
  forget_tenants(main, bases, function(base) return weight_by_base[base] or 0 end)
  return freed
end

-- Gives back acquisitions that are over, 1,000 at most, or 500 with tenants, as give_back_expired of ids.lua does. Returns the capacity
-- (nil: the semaphore is not in use), the used weight, whether the server's capacity counts, the weight that was given
-- back, and the time for which the keys are kept unused.
--
-- If only one of the keys was deleted, all is given back, because held acquisitions follow from both. Their holders
-- learn of it at their next renewal, which finds nothing. The leases may also be missing because the last of them is
-- over, and main is kept after a resize.
local function read_weights(main, leases, now)
  local noted = redis.call('HMGET', main, 'capacity', 'used', 'before', 'revised', 'keep')
  local keep, resized = require_integer(noted[5], 'time of a semaphore') or 0, (noted[3] or noted[4]) and true
  local capacity, used, freed = require_integer(noted[1], 'capacity of a semaphore'), require_integer(noted[2], 'use of a semaphore') or 0, 0
  if not capacity then
    redis.call('DEL', leases)
    return nil, 0, false, 0, 0
  end
  if used > 0 and redis.call('EXISTS', leases) == 0 then
    local gone = {}
    local all = redis.call('HGETALL', main)
    for i = 1, #all, 2 do
      if #all[i] == 13 or string.sub(all[i], 1, #TENANT_HOLDS) == TENANT_HOLDS or #all[i] == 14 and string.sub(all[i], 1, 1) == 't' then
        gone[#gone + 1] = all[i]
      end
    end
    for i = 1, #gone, 1000 do
      redis.call('HDEL', main, unpack(gone, i, math.min(i + 999, #gone)))
    end
    redis.call('HSET', main, 'used', 0)
    return capacity, 0, resized, used, keep
  end
  local over = redis.call('ZRANGE', leases, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if #over > 0 then
    freed = give_back(main, leases, limit_members(over), used, now)
  end
  return capacity, used - freed, resized, freed, keep
end

-- The part of the store that only reads.
local function weights_view(now, main, leases)
  local view = {now = now, key = leases, member = base_of}

  -- Returns the capacity, nil if the semaphore is not in use, and the held weight, without up to 1,000 acquisitions
  -- whose leases are over. The others count as held until calls have given them back: see read_weights.
  function view.look()
    local noted = redis.call('HMGET', main, 'capacity', 'used')
    local capacity, used = require_integer(noted[1], 'capacity of a semaphore'), require_integer(noted[2], 'use of a semaphore') or 0
    local past = redis.call('ZRANGE', leases, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000)
    for _, text in ipairs(#past > 0 and redis.call('HMGET', main, unpack(past)) or {}) do
      used = used - (text and read_weight(text) or 0)
    end
    if redis.call('EXISTS', leases) == 0 then
      used = 0
    end
    return capacity, used
  end

  function view.id(base) return base .. '\0\0\0' end

  function view.text(base)
    local text = redis.call('HGET', main, base)
    local n, label = read_weight(text) -- ends the script if the weight is not a number
    local tenant = read_tenant(text and is_of_tenant(base) and redis.call('HGET', main, 't' .. base))
    return tenant and with_tenant(digits(n), tenant, label) or text
  end

  return view
end

-- The part of the store that raises leases.
local function weights_leases(now, main, leases)
  local raised = {now = now, key = leases, record = main, forever = math.huge, member = base_of}
  function raised.members(owner) return {string.sub(owner, 1, 13)} end
  function raised.recorded(base) return main and redis.pcall('HEXISTS', main, base) or 1 end
  function raised.prolong(ms) extend_weight_keys(main, leases, ms) end
  return raised
end

-- The store.
local function weights_store(now, main, leases)
  local store = {now = now, record = main, keep = 0, largest = 9007199254740991, most = math.huge}

  local function read()
    local total, used, resized, freed, keep = read_weights(main, leases, now)
    store.total, store.available, store.resized, store.freed, store.keep = total, (total or 0) - used, resized, freed, keep
  end

  function store.open(capacity)
    read()
    if not store.total then
      store.total, store.available = capacity, capacity
    end
  end

  function store.check() end -- every change begins with main, so a missing right is found before

  function store.resize(capacity)
    local more = capacity - store.total
    store.total, store.available, store.resized = capacity, store.available + more, true
    store.freed = store.freed + math.max(0, more)
  end

  -- If HSET is refused, the lease without a weight counts as nothing. A weight without a lease would be held for ever.
  function store.put(base, n, ends_at, label, share)
    redis.call('ZADD', leases, 'GT', digits(ends_at), base)
    redis.call('HSET', main, base, digits(n) .. ' ' .. label)
    store.available = store.available - n
    if share then
      record_tenant(main, {base}, n, share)
    end
  end

  function store.take(base, n) -- put has just written it
    redis.call('HDEL', main, base)
    redis.call('ZREM', leases, base)
    forget_tenants(main, {base}, function() return n end)
    store.available = store.available + n
  end

  function store.known(base)
    return weight_of(main, base) ~= nil -- by HGET, because a release needs that right, too: a user without it is granted nothing
  end

  -- The weight stays as it is: a part of it may have been released since.
  function store.raise(base, _, ends_at)
    redis.call('ZADD', leases, 'GT', digits(ends_at), base)
    return true
  end

  -- Reads 64 acquisitions. If more are needed, the result is the end of the 64th: the next call then finds those given
  -- back.
  function store.ends(n, free)
    local list = redis.call('ZRANGE', leases, 0, 63, 'WITHSCORES')
    for i = 1, #list, 2 do
      free = free + (weight_of(main, list[i]) or 0)
      if free >= n or i == 127 then
        return math.max(1, tonumber(list[i + 1]) - now)
      end
    end
    return -1
  end

  function store.members(owner) return {string.sub(owner, 1, 13)} end
  store.member = base_of

  function store.give_back(bases, asked, kept)
    read()
    local held, count = 0, 0
    for i = 1, asked do
      local n = weight_of(main, bases[i])
      local ends_at = n and redis.call('ZSCORE', leases, bases[i])
      if ends_at and not expired(ends_at, now) then
        held, count = held + n, count + 1
      end
    end
    if kept < 0 and count < asked then
      return -1
    end
    if not store.total then
      return 0
    end
    local used, back = store.total - store.available, 0
    if kept <= 0 then -- also acquisitions that are over, if read could not give all of them back
      back = give_back(main, leases, bases, used, now)
    elseif kept < held then
      back = held - kept
      local _, label = weight_of(main, bases[1])
      redis.call('HSET', main, bases[1], digits(kept) .. ' ' .. label, 'used', digits(used - back))
      local tenant, is_counted = read_tenant(is_of_tenant(bases[1]) and redis.call('HGET', main, 't' .. bases[1]))
      if is_counted then
        subtract_from_tenant(main, tenant, back)
      end
    end
    store.available, store.freed = store.available + back, store.freed + back
    return held
  end

  function store.foreign() return false end -- nothing here is Redisson's

  function store.count()
    redis.call('HSET', main, 'capacity', digits(store.total), 'used', digits(store.total - store.available))
  end

  function store.save(ms)
    if ms > 0 then
      store.count()
      extend_weight_keys(main, leases, ms)
    end
  end

  return store
end
