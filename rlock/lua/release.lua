-- Take an owner out of a lock, which goes with the last one; then hand it over, or wake the waiters.
-- uses: owners, handover, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nothing is handed over
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] grant channels, without the connection id  ARGV[5] entry of this owner that may be in the queue, or '' or none
--   The last three may not be sent: see acquire
-- The owner of the same process's next tenure may be named: ARGV[6] owner  ARGV[7] its entry  ARGV[8] lease, ms
--   ARGV[9] not after, server ms  ARGV[10] how many callers had this one, one after the other
-- Reply: 1 released; 0 the owner held nothing. Where another is named {that, 1 it holds the lock now, 2 it is in the queue, 0
--   neither, its ticket, or 1 if it holds the lock and others queue}
-- Twice: a second removal finds nothing and says 0, and names no owner. An owner is never used again, so a late second run
--   cannot find a newer hold.
local key, queue, owner, channel, publish = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3] or 'PUBLISH'
local grants, leave, named, entry = ARGV[4] or 'redlatch_grant:', ARGV[5] or '', ARGV[6], ARGV[7]
if owner == '' then -- see validation_error; the common case makes no function
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
-- The common case: no other owner is to be named, no other owner is left, and the queue is empty.
local gone = not named and redis.pcall('HDEL', key, owner, owner .. '!')
local there -- as existing_keys returns it; asked once, for a lock that is handed over is the common case, too
if gone == 1 and leave == '' then
  if queue then
    there = redis.pcall('EXISTS', key, key, queue) -- see existing_keys
  else
    there = redis.pcall('EXISTS', key, key)
  end
  if there == 0 then
    if publish == 'SPUBLISH' then
      redis.pcall('SPUBLISH', channel, '0')
    else
      redis.pcall('PUBLISH', channel, '0')
    end
    return 1
  end
end
-- libraries

if named then
  if not is_valid(named, tonumber(ARGV[8])) then
    return redis.error_reply('ERR the owner named or its lease is nothing that can be asked for')
  end
  gone = redis.pcall('HDEL', key, owner, owner .. '!')
end
local q = queue_of(queue, publish, grants) or {}
local place = leave ~= '' and queue and tonumber((redis.pcall('ZSCORE', queue, leave))) -- of one that leaves: see hint
if type(gone) == 'table' then -- the key is not a hash: another's, if it is a string. A waiter of that leaves the queue all the same
  if leave ~= '' and queue then
    redis.pcall('ZREM', queue, leave, '!' .. owner)
  end
  local left = redis.call('PTTL', key)
  local holder = string_holder(key, left)
  if place and holder == 3 then
    hint(q, place)
  end
  gone = holder and 0 or redis.call('HDEL', key, owner, owner .. '!')
  return named and {gone, 0, 0} or gone
end
if gone == 2 then -- of a hold that was joined, or is a join, others may be left
  remove_owners(key, ARGV, 1, 0, true)
end
local released = gone > 0 and 1 or 0
if leave ~= '' and queue then
  redis.call('ZREM', queue, leave, '!' .. owner)
end
if not there then
  there = existing_keys(key, queue, true)
elseif type(there) == 'table' then
  there = nil
end
if place and there and there >= 2 and held_by_other_program(key) then
  hint(q, place)
end
local outcome, ticket = 0, 0
if there and there < 2 and (there == 1 or named) then
  q.now, q.us = clock()
  -- Only the holder's own release may name another, and only while that is waited for. Its deadline counts from when
  -- this call was first sent; a second run, which finds the holder gone, would grant a lease that is trusted for too long
  -- (testdata/scripts/release_queue.txt).
  local naming = named and released == 1 and not expired(ARGV[9], q.now)
  local open = (there == 1 or naming) and queue and is_javas_turn(q, channel, tonumber(ARGV[10] or 1))
  if naming and (there == 1 or open) then
    ticket = enqueue(q, entry, 0)
    outcome = 2
  end
  local served
  if open and redis.pcall('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1] then -- else no one waits, or it is of another type
    release_to_java(q, channel, '0')
    hint(q) -- to ask when that is over
    return named and {released, outcome, ticket} or released
  end
  if there == 1 and not (naming and outcome == 0) then
    served = hand_over(key, q, naming and entry, owner)
  end
  if served then
    return named and {released, outcome, ticket} or released
  end
  if naming then
    redis.call('HSET', key, named, 1)
    set_expiry(key, ARGV[8])
    if there == 1 then
      redis.call('ZREM', queue, entry, '!' .. named)
    end
    return {released, 1, there}
  end
end
-- The key is gone with its last owner. Waiters are notified also when it went otherwise (expiry, DEL, failover), because
-- no one else notified them (testdata/scripts/release.txt). A user without rights on the channel can still release, and waiters
-- poll (TestRelease_NoRightOnTheChannel_StillReleases).
if not there or there < 2 then
  send(publish, channel, '0')
end
return named and {released, 0, 0} or released
