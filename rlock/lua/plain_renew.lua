-- Renew the leases of many plain mutexes; one call of the watchdog.
-- uses: raise, renewal
-- KEYS the locks  ARGV owner, lease in ms for each; lease 0: only look; -1: only look, and reply how long
--   it lasts
-- Reply, for each: see renewal
-- Twice: a lease is raised to the wanted lease, never shortened. Only a key that the owner holds is renewed.
-- The last access to a key is a read: see renew.lua.
local replies = {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    replies[i] = failed_reply(held)
  elseif held ~= owner then
    replies[i] = 0
  else
    replies[i] = renewal_reply(lease, raise_expiry(key, lease))
    if lease > 0 then
      redis.call('PTTL', key)
    end
  end
end
return replies
