-- Everything there is to know of a semaphore, without changing it.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- Reply {server ms, 1 if the count is there, stored count, capacity of the last resize (0: none), id, end, label, id, end, label, …}
-- Twice: reads only.
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
local available = stored(count)
local reply = {number(clock()), available and '1' or '0', number(available or 0), redis.call('HGET', notes, 'capacity') or '0'}
local out = redis.call('ZRANGE', permits, 0, -1, 'WITHSCORES')
for i = 1, #out, 2 do
  reply[#reply + 1] = out[i]
  reply[#reply + 1] = number(tonumber(out[i + 1]))
  reply[#reply + 1] = redis.call('HGET', notes, out[i]) or ''
end
return reply
