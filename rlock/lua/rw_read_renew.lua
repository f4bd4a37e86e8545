-- Renew the leases of many read holds; one call of the watchdog.
-- uses: rw, raise, renewal, clock
-- KEYS for each: its timeout key, the lock, the lock's ends
-- ARGV owner, lease in ms for each; lease 0: only look; -1: only look, and reply how long it lasts
-- Or, while a slot is being migrated, KEYS[1] one of the three  ARGV owner, lease, the number of the key: see package
--   lease. A key that is made anew for a hold that is being released expires
-- Reply, for each: see renewal
-- Twice: an end is raised to the wanted end, never lowered. Only a hold that exists is renewed, and only its owner's.
-- The watchdog tracks the timeout key, which only its owner's scripts write: the last access to the key is a read (see
--   renew.lua). If memory is full, the server refuses ZADD and SET as the first write of a script. So ZREM, which
--   removes nothing, is the first.
local replies, now = {}, clock()

local function raise_timeout(timeout, lease)
  if redis.call('PTTL', timeout) < lease and redis.call('PEXPIRE', timeout, lease) == 0 then
    redis.call('SET', timeout, '1', 'PX', lease)
  end
end

if #KEYS == 1 then
  local key, owner, lease, part = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  if part == '2' then
    return {renew_lock(key, owner, lease, now)}
  elseif part == '3' then
    return {renew_end(key, owner, lease, now, true)}
  end
  if lease > 0 then
    raise_timeout(key, lease)
  end
  redis.pcall('GET', key)
  return {1}
end
for i = 1, #KEYS / 3 do
  local timeout, lock, ends = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local reply, ends_at = hold_ended(lock, ends, owner, now)
  if not reply then
    reply = renewal_reply(lease, lease < 0 and redis.call('PTTL', lock) or 0, ends_at, now)
    if lease > 0 then
      redis.call('ZREM', ends, '')
      raise_expiry(lock, lease)
      raise_timeout(timeout, lease)
      raise_end(ends, owner, now + lease, now)
    end
    redis.pcall('GET', timeout)
  end
  replies[i] = reply
end
return replies
