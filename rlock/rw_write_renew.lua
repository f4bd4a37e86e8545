-- Renew the leases of many write holds; one call of the watchdog.
-- KEYS for each: the lock, its ends  ARGV owner, lease in ms for each; lease 0: only look, -1: and say for how long
-- Or, while a slot is being migrated, KEYS[1] one of the two  ARGV owner, lease, which: see package lease.
-- Reply, for each: 1 renewed, or 1 + ms left; 0 the owner holds nothing; -1 not known (memory is full); -3 they may not be read; -2 they are no
--   lock
-- Twice: an end is raised to what is asked, never shortened. Nothing but a hold that is there is ever renewed, and none
--   but its owner's.
-- The last access to the lock is a read, and another write goes before ZADD: see rw_read_renew.lua.
local replies, now = {}, clock()

-- most writers have no end here: theirs is the lock's
local function raiseEnd(ends, field, till, lease)
  if till and lease > 0 then
    redis.call('ZREM', ends, '')
    enter(ends, field, now + lease, now)
  end
end

if #KEYS == 1 then
  local key, field, lease, which = KEYS[1], ARGV[1] .. ':write', tonumber(ARGV[2]), ARGV[3]
  if which == '1' then
    local there = redis.pcall('HEXISTS', key, field)
    if there ~= 1 then
      return {there == 0 and 0 or failed(there)}
    end
    local left = raise(key, lease)
    redis.call('HEXISTS', key, field)
    return {verdict(lease, left, nil, now)}
  end
  local till = redis.pcall('ZSCORE', key, field)
  if type(till) == 'table' then
    return {failed(nil, till)}
  elseif till and tonumber(till) <= now then
    return {0}
  end
  raiseEnd(key, field, till, lease)
  return {verdict(lease, -1, till, now)}
end
for i = 1, #KEYS / 2 do
  local lock, ends = KEYS[2 * i - 1], KEYS[2 * i]
  local field, lease = ARGV[2 * i - 1] .. ':write', tonumber(ARGV[2 * i])
  local there, till = redis.pcall('HEXISTS', lock, field), redis.pcall('ZSCORE', ends, field)
  if type(there) == 'table' or type(till) == 'table' then
    replies[i] = failed(there, till)
  elseif there == 0 or till and tonumber(till) <= now then
    replies[i] = 0
  else
    replies[i] = verdict(lease, raise(lock, lease), till, now)
    raiseEnd(ends, field, till, lease)
    redis.call('HEXISTS', lock, field)
  end
end
return replies
