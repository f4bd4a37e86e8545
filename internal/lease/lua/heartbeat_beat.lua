-- One beat: move the key's expiry on, which is what others watch, and make the key if it is not there.
-- KEYS[1] the heartbeat  ARGV[1] ttl, ms  ARGV[2] value
-- Reply: 1 moved, 0 made
-- Twice: one beat more.
-- PEXPIRE works also when memory is full: no hold is lost for that.
local there = redis.call('PEXPIRE', KEYS[1], ARGV[1])
if there == 0 then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
end
return there
