-- Leave a lock to the end of a lease that is counted from now, shorter or longer than what is left: for an owner that is
-- done with it.
-- uses: owners, clock
-- KEYS[1] the lock  KEYS[2] if there is one: where it is noted that the owner's heartbeats no longer matter
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] if there is one: the owner goes on holding the lock, which is not to end sooner than that
-- Reply: 1 done; 0 the owner holds nothing
-- Twice: the lease is set, not added to; a second run counts it from a little later.
-- From here on the owner has an end of its own ("owner!"), with a minus: it holds the lock, but is done with it. So no other owner
-- joins it any more (TestUnlockAfter_Kept_IsNotJoined). A late renewal or acquisition by this owner finds the hold over.
local key, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local bad = unfit(owner, lease)
if bad then
  return bad
end
local now = clock()
local held, left = redis.call('HMGET', key, owner, owner .. '!'), redis.call('PTTL', key)
if not held[1] or held[2] and expired(math.abs(tonumber(held[2])), now) then
  return 0
end
-- Raised first: memory that is full refuses HSET and SET only as the first write of a script. Then every owner has its
-- end: if the hold was joined, or is a join, the key lasts as long as the last of them.
redis.call('PEXPIRE', key, math.max(left, lease))
if KEYS[2] then
  redis.call('SET', KEYS[2], '1', 'PX', lease)
end
if ARGV[3] then
  return 1
end
redis.call('HSET', key, owner .. '!', digits(-now - lease))
remove(key, ARGV, 1, 0, true)
return 1
