-- Leave a plain mutex to the end of a lease that is counted from now: see keep.
-- uses: owners
-- KEYS[1] the lock  KEYS[2] if there is one: see keep
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] if there is one: see keep
-- Reply: 1 done; 0 the owner does not have it
-- Twice: the lease is set, not added to.
local owner, lease = ARGV[1], tonumber(ARGV[2])
local bad = unfit(owner, lease)
if bad then
  return bad
end
if redis.call('GET', KEYS[1]) ~= owner then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3] and math.max(redis.call('PTTL', KEYS[1]), lease) or lease)
if KEYS[2] then
  redis.call('SET', KEYS[2], '1', 'PX', lease)
end
return 1
