-- Delete a plain mutex if it is its owner's, and wake the waiters.
-- KEYS[1] the lock  ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH
-- Reply: 2 released; 0 the owner held nothing
-- Twice: a second run finds nothing, or another's, and says 0. An owner is never used again.
if ARGV[1] == '' then -- see unfit, a function; this script makes none
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local held = redis.call('GET', KEYS[1])
local status = 0
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  status = 2
end
if status == 2 or not held then
  redis.pcall(ARGV[3], ARGV[2], '0')
end
return status
