-- Lower the count of an owner, or remove it and, with the last one, the lock; then hand it over, or wake the waiters.
-- uses: owners, handover, clock, listeners
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nothing is handed over
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] grant channels, without the connection id  ARGV[6] entry of this owner that may be in the queue, or ''
-- The owner of the same process's next tenure may be named: ARGV[7] owner  ARGV[8] its entry  ARGV[9] lease, ms
--   ARGV[10] not after, server ms  ARGV[11] how many callers had this one, one after the other
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing. Where another is named {that, 1 it holds the lock
--   now, 2 it is in the queue, 0 neither, its ticket, or 1 if it holds the lock and others queue}
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0, and names nobody. An
--   owner is never used again, so a late second run cannot find a newer hold.
local queue, grants, leave, named, entry = KEYS[2], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local key, owner, remaining, channel, publish = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
if owner == '' or not (remaining and remaining >= 0 and remaining % 1 == 0) then -- see unfit; the common case makes no function
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
-- The common case: no other owner is to be named, no other owner is left, and nobody queues.
local gone = remaining == 0 and not named and redis.call('HDEL', key, owner, owner .. '!')
local there -- as which has it; asked once, for a lock that is handed over is the common case, too
if gone == 1 and leave == '' then
  if queue then
    there = redis.pcall('EXISTS', key, key, queue) -- see which
  else
    there = redis.pcall('EXISTS', key, key)
  end
  if there == 0 then
    redis.pcall(publish, channel, '0')
    return 2
  end
end
-- libraries

if named and not fit(named, 1, tonumber(ARGV[9])) then
  return redis.error_reply('ERR the owner named or its lease is nothing that can be asked for')
end
local status
if gone then
  status = gone > 0 and 2 or 0
  if gone == 2 then -- of a hold that was joined, or is a join, others may be left
    remove(key, ARGV, 1, 0, true)
  end
else
  status = lower(key, owner, remaining)
  if status == 1 then
    return 1
  end
end
if leave and leave ~= '' and queue then
  redis.call('ZREM', queue, leave, '!' .. owner)
end
if not there then
  there = which(key, queue, true)
elseif type(there) == 'table' then
  there = nil
end
local outcome, ticket = 0, 0
if there and there < 2 and (there == 1 or named) then
  -- Publish a release, and have our own waiters only wait for a few ms. Returns whether there are any; if not nothing is
  -- done.
  local function open_release(queue, channel, publish, grants, now)
    local head = redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', 0, 1)
    if not head[1] then
      return false
    end
    redis.call('ZADD', queue, -(now + OPEN), '!open')
    redis.pcall(publish, channel, '0')
    local owner = string.match(head[1], '^%S+')
    redis.pcall(publish, grants .. string.sub(owner, 1, 36), '0 0 ' .. owner) -- to look when that is over
    return true
  end

  local now, us = clock()
  -- Only the holder's own release may name another, and only while that is waited for. Its deadline counts from when
  -- this call was first sent; a second run, which finds the holder gone, would grant a lease that is trusted for too long
  -- (TestReleaseScriptWithAQueue).
  local naming = named and status == 2 and not expired(ARGV[10], now)
  -- Redisson's waiters race for what is published. Where any of them listens, one release in eight is theirs to race for. What several
  -- callers had counts as often, or it would be Redisson's turn the less often the more callers a process has.
  local open = (there == 1 or naming) and queue and us % 8 < tonumber(ARGV[11] or 1) and java_waits(publish, channel)
  if naming and (there == 1 or open) then
    ticket = enter(queue, entry, now, us)
    outcome = 2
  end
  local served
  if open and open_release(queue, channel, publish, grants, now) then
    return named and {status, outcome, ticket} or status
  end
  if there == 1 and not (naming and outcome == 0) then
    served = hand_over(key, queue, publish, grants, now, naming and entry, owner)
  end
  if served then
    return named and {status, outcome, ticket} or status
  end
  if naming then
    redis.call('HSET', key, named, 1)
    redis.call('PEXPIRE', key, ARGV[9])
    if there == 1 then
      redis.call('ZREM', queue, entry, '!' .. named)
    end
    return {status, 1, there}
  end
end
-- The key is gone with its last owner. Waiters are told also when it went otherwise (expiry, DEL, failover), because
-- nobody else told them (TestUnlockAfterTheKeyWentReportsLostAndWakesWaiters). A user without rights on the channel can still
-- release, and waiters poll (TestAUserWithoutRightsOnTheChannelCanStillRelease).
if not there or there < 2 then
  redis.pcall(publish, channel, '0')
end
return named and {status, 0, 0} or status
