-- Renew the leases of many write holds; one call of the watchdog.
-- uses: rw, raise, renewal, clock
-- KEYS for each: the lock, its ends  ARGV owner, lease in ms for each; lease 0: only look; -1: only look, and
--   reply how long it lasts
-- Or, while a slot is being migrated, KEYS[1] one of the two  ARGV owner, lease, the number of the key: see
--   package lease
-- Reply, for each: see renewal
-- Twice: an end is raised to the wanted end, never lowered. Only a hold that exists is renewed, and only its owner's.
-- The last access to the lock is a read, and ZREM comes before ZADD: see rw_read_renew.lua.
local replies, now = {}, clock()
if #KEYS == 1 then
  local key, field, lease = KEYS[1], ARGV[1] .. ':write', tonumber(ARGV[2])
  if ARGV[3] == '1' then
    return {renew_lock(key, field, lease, now)}
  end
  return {renew_end(key, field, lease, now)}
end
for i = 1, #KEYS / 2 do
  local lock, ends, field, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1] .. ':write', tonumber(ARGV[2 * i])
  local reply, ends_at = hold_ended(lock, ends, field, now)
  if not reply then
    reply = renewal_reply(lease, raise_expiry(lock, lease), ends_at, now)
    if ends_at and lease > 0 then -- most writers have no end here: their end is the expiry of the lock
      redis.call('ZREM', ends, '')
      raise_end(ends, field, now + lease, now)
    end
    redis.call('HEXISTS', lock, field)
  end
  replies[i] = reply
end
return replies
