-- Lower the count of an owner, or remove it and wake the waiters.
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0. An owner is never
--   used again, so a late second run cannot meet a newer hold.
local key, owner, remaining, channel, publish = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local status = 0
if redis.call('HEXISTS', key, owner) == 1 then
  if remaining > 0 then
    -- HSET is refused when memory is full; the count only informs, so that is no reason to fail
    redis.pcall('HSET', key, owner, remaining)
    return 1
  end
  redis.call('HDEL', key, owner)
  status = 2
end
-- The key is gone with its last owner. Waiters are told also when it went otherwise (expiry, DEL, failover), because
-- nobody else told them. A user without rights on the channel can still release: waiters then poll.
if redis.call('EXISTS', key) == 0 then
  redis.pcall(publish, channel, '0')
end
return status
