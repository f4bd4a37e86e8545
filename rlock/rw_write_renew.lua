-- Renew the leases of many write holds; one call of the watchdog.
-- KEYS for each: the lock, its ends  ARGV owner, lease in ms for each; lease 0: only look
-- Reply, for each: 1 renewed; 0 the owner holds nothing; -1 error on these keys, not known
-- Twice: an end is raised to what is asked, never shortened. Nothing but a hold that is there is ever renewed, and none
--   but its owner's.
-- The last access to the lock is a read, and another write goes before ZADD: see rw_read_renew.lua.
local replies, now = {}, clock()
for i = 1, #KEYS / 2 do
  local lock, ends = KEYS[2 * i - 1], KEYS[2 * i]
  local field, lease = ARGV[2 * i - 1] .. ':write', tonumber(ARGV[2 * i])
  local held, till = redis.pcall('HEXISTS', lock, field), redis.pcall('ZSCORE', ends, field)
  if type(held) == 'table' or type(till) == 'table' then
    replies[i] = -1
  elseif held == 0 or till and tonumber(till) <= now then
    replies[i] = 0
  else
    replies[i] = 1
    local left = redis.call('PTTL', lock)
    if left >= 0 and lease > 0 then
      redis.call('PEXPIRE', lock, math.max(left, lease)) -- a write in any case: see acquire
    end
    if till and lease > 0 then
      redis.call('ZREM', ends, '')
      enter(ends, field, now + lease, now)
    end
    redis.call('HEXISTS', lock, field)
  end
end
return replies
