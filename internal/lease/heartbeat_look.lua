-- When a heartbeat's key expires, which each beat changes, and its value.
-- KEYS[1] the heartbeat
-- Reply {server ms; 0: it is not there, value}
-- Twice: reads only.
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return {0, ''}
end
local time = redis.call('TIME')
return {time[1] * 1000 + math.floor(time[2] / 1000) + left, redis.call('GET', KEYS[1]) or ''}
