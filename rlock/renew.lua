-- Renew the leases of many holds; one call of the watchdog.
-- KEYS the locks  ARGV owner, lease in ms for each
-- Reply, for each: 1 renewed; 0 the owner holds nothing; -1 error on this key, not known
-- Twice: a lease is raised to what is asked, never shortened. PEXPIRE works also when memory is full. Nothing but a
--   field that is there is ever renewed, so a renewal that comes after the release does nothing.
local replies = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('HEXISTS', key, ARGV[2 * i - 1])
  if type(held) == 'table' then
    replies[i] = -1
  else
    local lease = tonumber(ARGV[2 * i])
    local left = held == 1 and redis.call('PTTL', key)
    if left and left >= 0 and left < lease then
      redis.call('PEXPIRE', key, lease)
    end
    replies[i] = held
  end
end
return replies
