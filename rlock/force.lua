-- Take a lock from the owners named, whoever they are, and wake the waiters if nobody is left.
-- KEYS[1] the lock
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3…] owners
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes nobody who came later.
local removed = 0
for i = 3, #ARGV do
  removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[1], ARGV[i] .. '!')
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.pcall(ARGV[2], ARGV[1], '0')
end
return removed
