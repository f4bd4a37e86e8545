-- End an owner's hold of a plain mutex, and keep the key until the end of a lease that counts from now: see keep.lua.
-- uses: owners
-- KEYS[1] the lock  KEYS[2] optional: see keep.lua
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] optional: see keep.lua
-- Reply: 1 done; 0 the owner does not hold the lock
-- Twice: the lease is set, not added to.
local owner, lease = ARGV[1], tonumber(ARGV[2])
local refusal = validation_error(owner, lease)
if refusal then
  return refusal
end
if redis.call('GET', KEYS[1]) ~= owner then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3] and math.max(redis.call('PTTL', KEYS[1]), lease) or lease)
if KEYS[2] then
  redis.call('SET', KEYS[2], '1', 'PX', lease)
end
return 1
