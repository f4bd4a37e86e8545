-- Acquiring a lock that is a hash, owner -> count. What acquires is two acts, so that several locks can be asked for all or
-- none: first each is seen to, then each is taken.
-- uses: owners, handover, clock

-- Why an owner cannot have a lock now: {status, ms, server ms, …}, as acquire.lua replies. Otherwise nil; and of an owner
-- that has it already the ms left of the lock, its count, and its own end, if it was joined. there is as which has it.
-- entry, if there is one, queues.
local function blocked(key, queue, owner, want, now, us, there, entry, publish, grants)
  if there < 2 then
    if want > 1 then -- a re-entry that made the key would give its owner a lock that another may have had in between
      return {3, 0, now}
    elseif there == 0 then
      return nil
    end
    -- free, but others were first: every request that finds it so keeps the order
    local rest = reserved(queue, now)
    if rest then
      return {0, rest, now, entry and enter(queue, entry, now, us) or 0, 0}
    elseif not hand_over(key, queue, publish, grants, now, entry) then
      return nil
    end
  end
  local left = redis.call('PTTL', key)
  local all = redis.call('HGETALL', key)
  local count, till, foreign
  for i = 1, #all, 2 do
    if all[i] == owner then
      count = tonumber(all[i + 1])
    elseif all[i] == owner .. '!' then
      till = tonumber(all[i + 1])
    elseif string.sub(all[i], -1) ~= '!' and not ours(all[i]) then
      foreign = 1
    end
  end
  if count and not (till and expired(till, now)) then
    return nil, left, count, till
  elseif count or want > 1 then
    return {3, 0, now}
  end
  return {0, left, now, entry and queue and enter(queue, entry, now, us) or 0, foreign or 0}
end

-- Have an owner hold a lock: one that is free, or, given what blocked returned, one that it has. Its count is set to what is
-- wanted, never added to, and no lease is shortened. Returns the reply.
local function grant(key, owner, want, lease, now, left, count, till)
  if not left then
    redis.call('HSET', key, owner, want)
    redis.call('PEXPIRE', key, lease)
    return {1, lease, now}
  end
  if till and till < now + lease then -- joined: this owner has a lease of its own (see join)
    redis.call('HSET', key, owner .. '!', digits(now + lease))
  end
  if count < want then
    redis.call('HSET', key, owner, want)
  end
  if left ~= -1 then
    -- Also where it changes nothing: replicas are asked to confirm what this connection wrote, and it may be the second
    -- run that wrote nothing else.
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left)
  end
  return {1, left, now}
end

-- Acquire one lock. Returns the reply.
local function acquire(key, queue, owner, want, lease, now, us, there, entry, publish, grants)
  local no, left, count, till = blocked(key, queue, owner, want, now, us, there, entry, publish, grants)
  if no then
    return no
  end
  local reply = grant(key, owner, want, lease, now, left, count, till)
  if there == 1 and entry then
    redis.call('ZREM', queue, entry, '!' .. owner)
  end
  return reply
end
