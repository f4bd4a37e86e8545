-- Remove an owner from a lock, and hand the lock over, or publish the release.
-- uses: owners, handover, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nothing is handed over
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] grant channels, without the connection id  ARGV[5] entry of this owner that may be in the queue, '' or none
--   The last three may be missing: see acquire
-- The owner of the same process's next tenure may be given: ARGV[6] owner  ARGV[7] its entry  ARGV[8] lease, ms
--   ARGV[9] not after, server ms  ARGV[10] the number of turns of this tenure
-- Reply: 1 released; 0 the owner held nothing. With a next owner {1 or 0, outcome, ticket}. outcome: 1 the next owner
--   holds the lock, and ticket is 1 if others are queued; 2 it is queued; 0 neither
-- Twice: a second removal finds nothing, replies 0, and does not serve the next owner. An owner is never used again, so
--   a late second run cannot find a newer hold.
local key, queue, owner, channel, publish = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3] or 'PUBLISH'
local grants, own_entry, next_owner, next_entry = ARGV[4] or 'redlatch_grant:', ARGV[5] or '', ARGV[6], ARGV[7]
if owner == '' then -- see validation_error; the common case makes no function
  return redis.error_reply('ERR owner or lease is not valid')
end
-- The common case: there is no next owner, no other owner is left, and the queue is empty.
local removed = not next_owner and redis.pcall('HDEL', key, owner, owner .. '!')
local existing -- as existing_keys returns it. Read once: a lock that is handed over is a common case, too
if removed == 1 and own_entry == '' then
  if queue then
    existing = redis.pcall('EXISTS', key, key, queue) -- as existing_keys
  else
    existing = redis.pcall('EXISTS', key, key)
  end
  if existing == 0 then
    if publish == 'SPUBLISH' then
      redis.pcall('SPUBLISH', channel, '0')
    else
      redis.pcall('PUBLISH', channel, '0')
    end
    return 1
  end
end
-- libraries

if next_owner then
  if not is_valid(next_owner, tonumber(ARGV[8])) then
    return redis.error_reply('ERR the next owner or its lease is not valid')
  end
  removed = redis.pcall('HDEL', key, owner, owner .. '!')
end
local q = queue_of(queue, publish, grants) or {}
local left_score = own_entry ~= '' and queue and tonumber((redis.pcall('ZSCORE', queue, own_entry))) -- the score of an entry that is removed: see hint
if type(removed) == 'table' then -- a string is another owner's lock. A waiter leaves its queue all the same
  if own_entry ~= '' and queue then
    redis.pcall('ZREM', queue, own_entry, '!' .. owner)
  end
  local left = redis.call('PTTL', key)
  local holder = string_holder(key, left)
  if left_score and holder == 3 then
    hint(q, left_score)
  end
  removed = holder and 0 or redis.call('HDEL', key, owner, owner .. '!')
  return next_owner and {removed, 0, 0} or removed
end
if removed == 2 then -- the hold was joined, or is a join: other owners may be left
  remove_owners(key, ARGV, 1, 0, true)
end
local released = removed > 0 and 1 or 0
if own_entry ~= '' and queue then
  redis.call('ZREM', queue, own_entry, '!' .. owner)
end
if not existing then
  existing = existing_keys(key, queue, true)
elseif type(existing) == 'table' then
  existing = nil
end
if left_score and existing and existing >= 2 and held_by_other_program(key, true) then
  hint(q, left_score)
end
local outcome, ticket = 0, 0
if existing and existing < 2 and (existing == 1 or next_owner) then
  q.now, q.us = clock()
  -- Only the run that releases the holder may serve the next owner, and only until the not-after. The next owner's
  -- deadline counts from the first send of this call. A second run, which finds no holder, would grant a lease that the
  -- process trusts for too long (testdata/scripts/release_queue.txt).
  local names_next = next_owner and released == 1 and not expired(ARGV[9], q.now)
  local is_open = (existing == 1 or names_next) and queue and is_javas_turn(q, channel, tonumber(ARGV[10] or 1))
  if names_next and (existing == 1 or is_open) then
    ticket = enqueue(q, next_entry, 0)
    outcome = 2
  end
  local served
  if is_open and redis.pcall('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1] then -- otherwise the queue is empty, or of another type
    release_to_java(q, channel, '0')
    hint(q) -- the first waiter sends a request when the reservation is over
    return next_owner and {released, outcome, ticket} or released
  end
  if existing == 1 and not (names_next and outcome == 0) then
    served = hand_over(key, q, names_next and next_entry, owner)
  end
  if served then
    return next_owner and {released, outcome, ticket} or released
  end
  if names_next then
    redis.call('HSET', key, next_owner, 1)
    set_expiry(key, ARGV[8])
    if existing == 1 then
      redis.call('ZREM', queue, next_entry, '!' .. next_owner)
    end
    return {released, 1, existing}
  end
end
-- The lock is free. The release is also published if this owner did not hold the lock, because after an expiry, DEL or
-- failover no other script has published it (testdata/scripts/release.txt). A user without rights on the channel can
-- still release, and waiters poll (TestRelease_NoRightOnTheChannel_StillReleases).
if not existing or existing < 2 then
  send(publish, channel, '0')
end
return next_owner and {released, 0, 0} or released
