-- Take a fair lock from the owners named, this client's or not; if nobody is left wake the first in line.
-- uses: owners, fair, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both nobody is woken
-- ARGV[1] channel, without ":" and the owner  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] nothing  ARGV[4…] owners
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes no later owner.
local removed = remove(KEYS[1], ARGV, 4, #ARGV)
if KEYS[2] and emptied(KEYS[1]) then
  tell(front(KEYS[2], KEYS[3], (clock())), ARGV[2], ARGV[1])
end
return removed
