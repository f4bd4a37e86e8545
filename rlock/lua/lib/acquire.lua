-- Acquires a lock that is a hash, owner -> count. An acquisition has two steps, so that a request for several locks
-- gets all or none: find_refusal checks each lock first, and grant then makes the owner the holder of each.
--
-- The lock may be held as a string: as a Plain lock, or by redsync and similar libraries, while a service moves from
-- them to a hash. A lock's key is made only if no key of either type exists, so the two kinds exclude each other. A
-- waiter for the hash waits in the queue:
--
--   waiter B                                     holder A
--                                                redsync: SET NX PX
--   acquire: a string, 8 s left; queued  ------>
--   (redsync does not use B's entry)             DEL, without a message
--   sleeps, for a PollCap at most, or the 8 s
--   acquire: free, and B is the first: granted
--
-- * A releases between B's request and its sleep: B sleeps all the same, and another waiter, also of redsync, may
--   come first.
-- * A's key expires: B has counted the lease down, and sends a request. A, too late, compares the value before it
--   deletes, and finds a hash: A gets an error.
-- * A is a Plain lock's holder: its release reads the queue, and hands the lock to B.
-- uses: owners, handover, queue, clock

-- Returns why an owner cannot have a lock now: {status, ms, server ms, …}, as acquire.lua replies. Otherwise it returns
-- nil. For an owner that holds the lock already, it also returns the rest of the lock's lease in ms, and the owner's
-- own end, if the owner was joined. there is the result of existing_keys. entry, if there is one, is put into the
-- queue. q is nil without a queue.
local function find_refusal(key, q, owner, now, existing, entry)
  if existing == 0 then
    return nil
  elseif existing == 1 then -- free, but others are queued: every such request keeps the order
    local ms_reserved, served = any_reservation_left(q), nil
    if not ms_reserved then
      served, ms_reserved = hand_over(key, q, entry)
      if not served then
        return nil
      end
    end
    if ms_reserved then
      return {0, ms_reserved, now, entry and enqueue(q, entry, 0) or 0, 0}
    end
  end
  local left = redis.call('PTTL', key)
  local fields, has_more = fields_of(key)
  if fields.err then -- not a hash: the owner waits for a string, too, or the command returns the error again
    local holder = string_holder(key, left) or redis.call('HSCAN', key, 0)
    return {0, left, now, entry and q and enqueue(q, entry, 0) or 0, holder}
  end
  local is_held, ends_at, foreign
  if has_more then
    local own = redis.call('HMGET', key, owner, owner .. '!')
    is_held, ends_at = own[1], own[2] and tonumber(own[2])
  end
  for i = 1, #fields, 2 do
    if fields[i] == owner then
      is_held = true
    elseif fields[i] == owner .. '!' then
      ends_at = tonumber(fields[i + 1])
    elseif string.sub(fields[i], -1) ~= '!' and not is_ours(fields[i]) then
      foreign = 1
    end
  end
  if is_held and not (ends_at and expired(ends_at, now)) then
    return nil, left, ends_at
  elseif is_held then -- the owner was joined and its end is over, or it was released
    return {3, 0, now}
  end
  return {0, left, now, entry and q and enqueue(q, entry, 0) or 0, foreign or 0}
end

-- Makes an owner the holder of a free lock, or grants a lock again to its holder, with the results of find_refusal. No
-- lease is shortened. Returns the reply.
local function grant(key, owner, lease, now, left, ends_at)
  if not left then
    redis.call('HSET', key, owner, '1')
    set_expiry(key, lease)
    return {1, lease, now}
  end
  if ends_at and ends_at < now + lease then -- the owner was joined, and has a lease of its own (see join)
    redis.call('HSET', key, owner .. '!', digits(now + lease))
  end
  if left ~= -1 then
    -- Written even if it changes nothing: WAIT confirms the writes of this connection, and a second run makes no other
    -- write.
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left)
  end
  return {1, left, now}
end

-- Makes an owner the holder in place of "from", another owner of its process, with exactly this lease. The queue is not
-- read, because the lock stays within the process. Returns the reply: {1, ms, server ms}, {3, 0, server ms} if from
-- does not hold the lock, or {6, 0, server ms} if another owner holds it, too.
--
-- * The script runs twice: the owner holds the lock, and is granted it again. Its lease is only raised, because a
--   renewal may have made it longer.
-- * from was joined, or was released by UnlockAfter (keep): both have an end of their own. A joiner would work beside
--   the next caller.
-- * The script runs after from was released, or after its lease has ended: another owner may hold the lock, and
--   nothing is done.
local function transfer_hold(key, owner, lease, now, from)
  local fields, has_more = fields_of(key)
  if fields.err then
    return {3, 0, now}
  end
  local found, alone = false, not has_more
  for i = 1, #fields, 2 do
    if fields[i] == owner then
      return grant(key, owner, lease, now, redis.call('PTTL', key))
    elseif fields[i] == from then
      found = true
    else
      alone = false
    end
  end
  if not found or not alone then
    return {found and 6 or 3, 0, now}
  end
  redis.call('HSET', key, owner, '1') -- the first write: the server refuses it if its memory is full
  local set = redis.pcall('PEXPIRE', key, lease)
  redis.call('HDEL', key, type(set) == 'table' and owner or from)
  return type(set) == 'table' and set or {1, lease, now}
end

-- Acquires one lock. Returns the reply.
local function acquire(key, q, owner, lease, now, existing, entry)
  local refusal, left, ends_at = find_refusal(key, q, owner, now, existing, entry)
  if refusal then
    return refusal
  end
  local reply = grant(key, owner, lease, now, left, ends_at)
  if existing == 1 and entry then
    dequeue(q, entry)
  end
  return reply
end
