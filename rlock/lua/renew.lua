-- Renew the leases of many holds; one call of the watchdog.
-- uses: raise, renewal, clock
-- KEYS the locks  ARGV owner, lease in ms for each; lease 0: only look; -1: only look, and reply how long it lasts
-- Reply, for each: see renewal
-- Twice: a lease is raised to the wanted lease, never shortened. PEXPIRE works even if memory is full. Only a field
--   that exists is renewed, so a renewal that comes after the release does nothing.
-- The last access to a key is a read. Otherwise the write would end the tracking of the key on a connection that tracks
--   keys without its own writes (NOLOOP).
local replies = {}
local now
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local held = redis.pcall('HMGET', key, owner, owner .. '!')
  if held.err then
    replies[i] = failed_reply(held)
  elseif not held[1] then
    replies[i] = 0
  else
    replies[i] = 1
    local ends_at = held[2] and tonumber(held[2])
    if ends_at then -- joined: each owner has a lease of its own, in the server's time
      now = now or clock()
      if ends_at < 0 then
        replies[i] = 0 -- the owner was released, and the lock is kept: see keep
      elseif expired(ends_at, now) then
        redis.call('HDEL', key, owner, owner .. '!')
        replies[i] = 0
      elseif ends_at < now + lease and type(redis.pcall('HSET', key, owner .. '!', digits(now + lease))) == 'table' then
        replies[i] = -1 -- memory is full: this owner's own lease is not raised
      end
    end
    if replies[i] == 1 then
      replies[i] = renewal_reply(lease, raise_expiry(key, lease), ends_at, now)
      if lease > 0 then
        redis.call('PTTL', key)
      end
    end
  end
end
return replies
