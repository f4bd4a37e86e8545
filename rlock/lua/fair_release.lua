-- Lower the count of an owner of a fair lock, or remove it, and hand the lock to the first in line or wake it: see release.
-- uses: owners, fair, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) nobody is
--   served  KEYS[4] places of those that can be handed the lock; without it nobody is
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel, without ":" and the owner  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] '' or not: this owner may stand in line, and leaves it  ARGV[6] grant channels, without the connection id
-- ARGV[7…] others that leave, too: each may hold the lock, or stand in line, or neither. So those that leave the line together are one
--   call, and nobody of them is served on the way
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: as release. A second run finds the lock held by the one that was handed it, or has told a first in line once more.
local key, queue, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]
local status
if ARGV[7] then
  local all = {owner, unpack(ARGV, 7)}
  status = remove(key, all, 1, #all) > 0 and 2 or 0
else
  status = lower(key, owner, tonumber(ARGV[2]))
end
if not queue or status ~= 0 and status ~= 2 then
  return status
end
if ARGV[5] ~= '' then
  leave(queue, timeouts, places, owner)
end
for i = 7, #ARGV do
  leave(queue, timeouts, places, ARGV[i])
end
local there = redis.pcall('EXISTS', key)
if there ~= 1 then
  pass(there == 0 and key, queue, timeouts, places, ARGV[4], ARGV[3], ARGV[6], (clock()))
end
return status
