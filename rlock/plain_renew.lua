-- Renew the leases of many plain mutexes; one call of the watchdog.
-- KEYS the locks  ARGV owner, lease in ms for each; lease 0: only look, -1: and say for how long
-- Reply, for each: 1 renewed, or 1 + ms left; 0 the owner holds nothing; -1 not known (memory is full); -3 it may not be read; -2 it is no lock
-- Twice: a lease is raised to what is asked, never shortened; nothing but the owner's own key is renewed.
-- The last access to a key is a read: see renew.
local replies = {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    replies[i] = string.find(held.err, 'WRONGTYPE', 1, true) and -2 or -3
  elseif held ~= owner then
    replies[i] = 0
  else
    replies[i] = 1
    local left = redis.call('PTTL', key)
    if left >= 0 and lease > 0 then
      redis.call('PEXPIRE', key, math.max(left, lease)) -- a write in any case: see acquire
      redis.call('PTTL', key)
    end
    if lease < 0 and left >= 0 then
      replies[i] = 1 + math.max(1, left)
    end
  end
end
return replies
