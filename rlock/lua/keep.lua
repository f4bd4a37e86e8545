-- End an owner's hold, and keep the lock until the end of a lease that counts from now, shorter or longer than the
-- lease that is left (UnlockAfter).
-- uses: owners, clock
-- KEYS[1] the lock  KEYS[2] optional: a key that exists while the lock is kept, so that missing heartbeats do not end
--   it
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] optional: the owner goes on holding the lock, which must not end earlier
--   than that
-- Reply: 1 done; 0 the owner holds nothing
-- Twice: the lease is set, not added to; the second run counts it from a little later.
-- The owner gets an end of its own ("owner!"), as a negative number: the field still keeps the lock, but the hold has
-- ended. So no other owner joins the hold any more (TestUnlockAfter_Kept_IsNotJoined). A late renewal or acquisition by
-- this owner finds the hold over.
local key, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local refusal = validation_error(owner, lease)
if refusal then
  return refusal
end
local now = clock()
local held, left = redis.call('HMGET', key, owner, owner .. '!'), redis.call('PTTL', key)
if not held[1] or held[2] and expired(math.abs(tonumber(held[2])), now) then
  return 0
end
-- The expiry of the key is raised first, because full memory refuses HSET and SET only as the first write of a script.
-- remove then sets it to the latest end: if the hold was joined, or is a join, the key lasts as long as the last owner.
redis.call('PEXPIRE', key, math.max(left, lease))
if KEYS[2] then
  redis.call('SET', KEYS[2], '1', 'PX', lease)
end
if ARGV[3] then
  return 1
end
redis.call('HSET', key, owner .. '!', digits(-now - lease))
remove_owners(key, ARGV, 1, 0, true)
return 1
