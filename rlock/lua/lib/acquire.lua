-- Acquiring a lock that is a hash, owner -> count. What acquires is two acts, so that several locks can be asked for all or
-- none: first each is seen to, then each is taken.
--
-- The lock may be held as a string: as a Plain lock, or by redsync and the like, while a service moves from these to a hash. The key
-- is made only where none is, of either type, so one kind excludes the other. Who asks for the hash waits in the queue:
--
--   waiter B                                     holder A
--                                                redsync: SET NX PX
--   acquire: a string, 8 s left; queued  ------>
--   (its place is of no use to redsync)          DEL, of which no message is sent
--   sleeps, for a PollCap at most, or the 8 s
--   acquire: free, it is the first: granted
--
-- * A releases between B's look and its sleep: B sleeps all the same, and another waiter, of redsync's too, may come first.
-- * A's key expires: B has counted it down, and asks. A, late, compares the value before it deletes, and finds a hash: an error there.
-- * A is a Plain lock's: its release looks into the queue, and hands the lock to B.
-- uses: owners, handover, queue, clock

-- Why an owner cannot have a lock now: {status, ms, server ms, …}, as acquire.lua replies. Otherwise nil; and of an owner
-- that has it already the ms left of the lock, and its own end, if it was joined. there is as which has it.
-- entry, if there is one, queues. q: nil without a queue.
local function blocked(key, q, owner, now, there, entry)
  if there == 0 then
    return nil
  elseif there == 1 then -- free, but others were first: every request that finds it so keeps the order
    local rest, served = reserved(q), nil
    if not rest then
      served, rest = hand_over(key, q, entry)
      if not served then
        return nil
      end
    end
    if rest then
      return {0, rest, now, entry and enter(q, entry, 0) or 0, 0}
    end
  end
  local left = redis.call('PTTL', key)
  local all, more = fields_of(key)
  if all.err then -- not a hash: it waits for a string as for a hash, or the command refuses again
    local holder = string_holder(key, left) or redis.call('HSCAN', key, 0)
    return {0, left, now, entry and q and enter(q, entry, 0) or 0, holder}
  end
  local has, till, foreign
  if more then
    local own = redis.call('HMGET', key, owner, owner .. '!')
    has, till = own[1], own[2] and tonumber(own[2])
  end
  for i = 1, #all, 2 do
    if all[i] == owner then
      has = true
    elseif all[i] == owner .. '!' then
      till = tonumber(all[i + 1])
    elseif string.sub(all[i], -1) ~= '!' and not ours(all[i]) then
      foreign = 1
    end
  end
  if has and not (till and expired(till, now)) then
    return nil, left, till
  elseif has then -- joined, or done with it
    return {3, 0, now}
  end
  return {0, left, now, entry and q and enter(q, entry, 0) or 0, foreign or 0}
end

-- Have an owner hold a lock: one that is free, or, given what blocked returned, one that it has. No lease is shortened. Returns
-- the reply.
local function grant(key, owner, lease, now, left, till)
  if not left then
    redis.call('HSET', key, owner, '1')
    set_end(key, lease)
    return {1, lease, now}
  end
  if till and till < now + lease then -- joined: this owner has a lease of its own (see join)
    redis.call('HSET', key, owner .. '!', digits(now + lease))
  end
  if left ~= -1 then
    -- Also where it changes nothing: replicas are asked to confirm what this connection wrote, and it may be the second
    -- run that wrote nothing else.
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left)
  end
  return {1, left, now}
end

-- Have an owner hold a lock in place of "from", another owner of its process, with exactly this lease. The queue is not looked at: the
-- lock stays within the process. Returns the reply: {1, ms, server ms}, {3, 0, server ms} if from does not hold it, or {6, 0, server ms} if
-- it is not alone.
--
-- * It runs twice: the owner has the lock, and is granted it again. Its lease is only raised, for it may be longer by now.
-- * from was joined, or is done with the lock (keep): both have an end of their own. A joiner would work beside the next caller.
-- * It comes after from was released, or its lease has ended: another may hold the lock, and nothing is done.
local function take_over(key, owner, lease, now, from)
  local all, more = fields_of(key)
  if all.err then
    return {3, 0, now}
  end
  local found, alone = false, not more
  for i = 1, #all, 2 do
    if all[i] == owner then
      return grant(key, owner, lease, now, redis.call('PTTL', key))
    elseif all[i] == from then
      found = true
    else
      alone = false
    end
  end
  if not found or not alone then
    return {found and 6 or 3, 0, now}
  end
  redis.call('HSET', key, owner, '1') -- the first write, which memory that is full refuses
  local set = redis.pcall('PEXPIRE', key, lease)
  redis.call('HDEL', key, type(set) == 'table' and owner or from)
  return type(set) == 'table' and set or {1, lease, now}
end

-- Acquire one lock. Returns the reply.
local function acquire(key, q, owner, lease, now, there, entry)
  local no, left, till = blocked(key, q, owner, now, there, entry)
  if no then
    return no
  end
  local reply = grant(key, owner, lease, now, left, till)
  if there == 1 and entry then
    step_out(q, entry)
  end
  return reply
end
