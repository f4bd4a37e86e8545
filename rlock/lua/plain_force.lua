-- Delete a plain mutex if one of the owners named has it, and wake the waiters.
-- KEYS[1] the lock
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] nothing  ARGV[4…] owners
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes no later owner.
local held = redis.call('GET', KEYS[1])
for i = 4, #ARGV do
  if held == ARGV[i] then
    redis.call('DEL', KEYS[1])
    redis.pcall(ARGV[2], ARGV[1], '0')
    return 1
  end
end
return 0
