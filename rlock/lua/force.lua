-- Remove the named owners from a lock, of any client; if no owner is left, hand the lock over, or publish the release.
-- uses: owners, handover, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) the lock is not handed over
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id  ARGV[4…] owners
-- Reply: the number of removed owners
-- Twice: owners are never used again, so a second run removes no later owner.
local removed = remove_owners(KEYS[1], ARGV, 4, #ARGV)
local existing = existing_keys(KEYS[1], KEYS[2], true)
if not existing then
  send(ARGV[2], ARGV[1], '0')
elseif existing < 2 and not (KEYS[2] and hand_over(KEYS[1], queue_of(KEYS[2], ARGV[2], ARGV[3], clock()))) then
  send(ARGV[2], ARGV[1], '0')
end
return removed
