-- Delete a plain mutex if one of the owners named has it, and tell the first in line, or wake the waiters where there is no line.
-- uses: plain_queue, clock, send
-- KEYS[1] the lock  KEYS[2] its line  KEYS[3] the queue of locks of this name that are a hash; without both (see plain_acquire) the
--   release is published
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id  ARGV[4…] owners
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes no later owner.
local held = redis.call('GET', KEYS[1])
for i = 4, #ARGV do
  if held == ARGV[i] then
    redis.call('DEL', KEYS[1])
    if KEYS[2] then
      pass_on(KEYS[1], KEYS[2], KEYS[3], ARGV[2], ARGV[3], (clock()))
    else
      send(ARGV[2], ARGV[1], '0')
    end
    return 1
  end
end
return 0
