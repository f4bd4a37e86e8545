-- Lower the count of an owner, or remove it and, with the last one, the lock; then wake the waiters.
-- KEYS[1] the lock
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0. An owner is never
--   used again, so a late second run cannot meet a newer hold.
local key, owner, remaining, channel, publish = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local status = 0
if remaining > 0 then
  if redis.call('HEXISTS', key, owner) == 1 then
    -- HSET is refused when memory is full; the count only informs, so that is no reason to fail
    redis.pcall('HSET', key, owner, remaining)
    return 1
  end
else
  local removed = redis.call('HDEL', key, owner, owner .. '!')
  if removed > 0 then
    status = 2
  end
  if removed == 2 then
    -- The hold was joined, or is a join: others may be left, each with a lease of its own ("owner!" -> its end, server
    -- ms). The dead among them hold nothing, and the key lasts no longer than the last of the living.
    local time = redis.call('TIME')
    local now, last = time[1] * 1000 + math.floor(time[2] / 1000), 0
    local all = redis.call('HGETALL', key)
    for i = 1, #all, 2 do
      if string.sub(all[i], -1) == '!' then
        local till = tonumber(all[i + 1])
        if till <= now then
          redis.call('HDEL', key, all[i], string.sub(all[i], 1, -2))
        elseif till > last then
          last = till
        end
      end
    end
    if last > 0 then
      redis.call('PEXPIRE', key, last - now)
    end
  end
end
-- The key is gone with its last owner. Waiters are told also when it went otherwise (expiry, DEL, failover), because
-- nobody else told them. A user without rights on the channel can still release: waiters then poll.
if redis.call('EXISTS', key) == 0 then
  redis.pcall(publish, channel, '0')
end
return status
