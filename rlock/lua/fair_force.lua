-- Remove the named owners from a fair lock, of any client; if no owner is left, hand the lock to the first in the
-- queue, or notify it.
-- uses: owners, fair, queue, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both no waiter is served
-- KEYS[4] the waiters that can be handed the lock; without it (a slot is being migrated) no waiter can
-- ARGV[1] channel, without ":" and the owner  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the
--   connection id
-- ARGV[4…] owners
-- Reply: the number of removed owners
-- Twice: owners are never used again, so a second run removes no later owner.
local removed = remove_owners(KEYS[1], ARGV, 4, #ARGV)
local existing = KEYS[2] and redis.pcall('EXISTS', KEYS[1])
if existing and existing ~= 1 then
  hand_over_fair(existing == 0 and KEYS[1], queue_of(KEYS[2], ARGV[2], ARGV[3], clock()), KEYS[3], KEYS[4], ARGV[1])
end
return removed
