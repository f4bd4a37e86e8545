-- Everything there is to know of a lock, without changing it.
-- KEYS[1] the lock
-- Reply {ms left (-1 without end, -2 not locked), server ms, field, value, field, value, …}
-- Twice: reads only.
local time = redis.call('TIME')
local reply = {redis.call('PTTL', KEYS[1]), time[1] * 1000 + math.floor(time[2] / 1000)}
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then -- a plain mutex is a string, its owner
  all = {redis.call('GET', KEYS[1]), '1'}
end
for _, v in ipairs(all) do
  reply[#reply + 1] = v
end
return reply
