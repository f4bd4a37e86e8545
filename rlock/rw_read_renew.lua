-- Renew the leases of many read holds; one call of the watchdog.
-- KEYS for each: its timeout key, the lock, the lock's ends
-- ARGV owner, lease in ms for each; lease 0: only look, -1: and say for how long
-- Or, while a slot is being migrated, KEYS[1] one of the three  ARGV owner, lease, which: see package lease. What is put
--   back for a hold that is being released ends by itself.
-- Reply, for each: 1 renewed, or 1 + ms left; 0 the owner holds nothing; -1 not known (memory is full); -3 they may not be read; -2 they are no
--   lock
-- Twice: an end is raised to what is asked, never shortened. Nothing but a hold that is there is ever renewed, and none
--   but its owner's.
-- Where the server tells of changes it is of the timeout key, which nobody else writes: its last access is a read (see
-- renew.lua). Memory that is full refuses ZADD and SET only as the first write of a script,
-- so another goes first.
local replies, now = {}, clock()

local function raiseTimeout(timeout, lease)
  if redis.call('PTTL', timeout) < lease and redis.call('PEXPIRE', timeout, lease) == 0 then
    redis.call('SET', timeout, '1', 'PX', lease)
  end
end

if #KEYS == 1 then
  local key, owner, lease, which = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  if which == '2' then
    local there = redis.pcall('HEXISTS', key, owner)
    if there ~= 1 then
      return {there == 0 and 0 or failed(there)}
    end
    return {verdict(lease, raise(key, lease), nil, now)}
  elseif which == '3' then
    local till = redis.pcall('ZSCORE', key, owner)
    if type(till) == 'table' then
      return {failed(nil, till)}
    elseif till and tonumber(till) <= now then
      return {0}
    elseif lease > 0 then
      redis.call('ZREM', key, '')
      enter(key, owner, now + lease, now)
    end
    return {verdict(lease, -1, till, now)}
  end
  if lease > 0 then
    raiseTimeout(key, lease)
  end
  redis.pcall('GET', key)
  return {1}
end
for i = 1, #KEYS / 3 do
  local timeout, lock, ends = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local there, till = redis.pcall('HEXISTS', lock, owner), redis.pcall('ZSCORE', ends, owner)
  if type(there) == 'table' or type(till) == 'table' then
    replies[i] = failed(there, till)
  elseif there == 0 or till and tonumber(till) <= now then
    replies[i] = 0
  else
    replies[i] = verdict(lease, lease < 0 and redis.call('PTTL', lock) or 0, till, now)
    if lease > 0 then
      redis.call('ZREM', ends, '')
      raise(lock, lease)
      raiseTimeout(timeout, lease)
      enter(ends, owner, now + lease, now)
    end
    redis.pcall('GET', timeout)
  end
end
return replies
