-- Leave a plain mutex to the end of a lease that is counted from now: see keep.
-- KEYS[1] the lock  KEYS[2] if there is one: see keep
-- ARGV[1] owner  ARGV[2] lease, ms
-- Reply: 1 done; 0 the owner does not have it
-- Twice: the lease is set, not added to.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if KEYS[2] then
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
end
return 1
