-- Lower the count of an owner of a fair lock, or remove it and wake the first in line: see release.
-- uses: owners, fair, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) nobody is
--   woken
-- ARGV[1] owner  ARGV[2] remaining count  ARGV[3] channel, without ":" and the owner  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] '' or not: this owner may stand in line, and leaves it
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: as release.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[1]
local status = lower(key, owner, tonumber(ARGV[2]))
if not queue or status ~= 0 and status ~= 2 then
  return status
end
if ARGV[5] ~= '' then
  leave(queue, timeouts, owner)
end
if emptied(key) then
  tell(front(queue, timeouts, (clock())), ARGV[4], ARGV[3])
end
return status
