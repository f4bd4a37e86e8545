-- Take a lock from the owners named, whoever they are; if nobody is left hand it over, or wake the waiters.
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nothing is handed over
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id  ARGV[4…] owners
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes nobody who came later.
local removed = remove(KEYS[1], ARGV, 4, #ARGV)
local there = which(KEYS[1], KEYS[2])
if not there then
  redis.pcall(ARGV[2], ARGV[1], '0')
elseif there < 2 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not (KEYS[2] and hand_over(KEYS[1], KEYS[2], ARGV[2], ARGV[3], now)) then
    redis.pcall(ARGV[2], ARGV[1], '0')
  end
end
return removed
