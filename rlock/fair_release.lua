-- Lower the count of an owner of a fair lock, or remove it and wake the first in line: see release.
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) nobody is
--   woken
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel, without ":" and the owner  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] '' or not: this owner may stand in line, and leaves it
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: as release.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, remaining = ARGV[1], tonumber(ARGV[2])
if owner == '' or not (remaining and remaining >= 0 and remaining % 1 == 0) then -- see fit
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local status = 0
if remaining > 0 then
  if redis.call('HEXISTS', key, owner) == 1 then
    redis.pcall('HSET', key, owner, remaining)
    return 1
  end
elseif remove(key, ARGV, 1, 1) > 0 then
  status = 2
end
if not queue then
  return status
end
if ARGV[5] ~= '' then
  leave(queue, timeouts, owner)
end
if emptied(key) then
  local time = redis.call('TIME')
  tell(first(queue, timeouts, time[1] * 1000 + math.floor(time[2] / 1000)), ARGV[4], ARGV[3])
end
return status
