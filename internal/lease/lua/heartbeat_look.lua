-- When a heartbeat's key expires, which each beat changes, and its value.
-- uses: clock
-- KEYS[1] the heartbeat
-- Reply {server ms; 0: it is not there, value}
-- Twice: reads only.
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return {0, ''}
end
return {clock() + left, redis.call('GET', KEYS[1]) or ''}
