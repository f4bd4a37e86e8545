-- Renew the leases of many holds; one call of the watchdog.
-- uses: raise, renewal, clock
-- KEYS the locks  ARGV owner, lease in ms for each; lease 0: only look, -1: and say for how long
-- Reply, for each: see renewal
-- Twice: a lease is raised to what is asked, never shortened. PEXPIRE works also when memory is full. Nothing but a
--   field that is there is ever renewed, so a renewal that comes after the release does nothing.
-- The last access to a key is a read: on a connection that tracks keys without its own writes (NOLOOP), the write
--   before it would otherwise end the tracking.
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
    local till = held[2] and tonumber(held[2])
    if till then -- joined: each owner has a lease of its own, in the server's time
      now = now or clock()
      if till < 0 then
        replies[i] = 0 -- it is done, and the lock left to its end: see keep
      elseif expired(till, now) then
        redis.call('HDEL', key, owner, owner .. '!')
        replies[i] = 0
      elseif till < now + lease and type(redis.pcall('HSET', key, owner .. '!', digits(now + lease))) == 'table' then
        replies[i] = -1 -- memory is full: this owner's own lease stands as it was
      end
    end
    if replies[i] == 1 then
      replies[i] = renewal_reply(lease, raise_expiry(key, lease), till, now)
      if lease > 0 then
        redis.call('PTTL', key)
      end
    end
  end
end
return replies
