-- Delete a plain mutex if one of the named owners holds it, and notify the first in the queue; without a queue publish
-- the release.
-- uses: handover, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) the release is published
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id  ARGV[4…] owners
-- Reply: the number of removed owners
-- Twice: owners are never used again, so a second run removes no later owner.
local key, queue = KEYS[1], KEYS[2]
local held = redis.call('GET', key)
for i = 4, #ARGV do
  if held == ARGV[i] then
    redis.call('DEL', key)
    if not queue then
      send(ARGV[2], ARGV[1], '0')
    elseif existing_keys(key, queue, true) == 1 then
      hand_over(key, queue_of(queue, ARGV[2], ARGV[3], clock()))
    end
    return 1
  end
end
return 0
