-- Read everything about a semaphore, without changing it.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- Reply {server ms, 1 if the count is there, available, those over not counted, capacity of the last resize (0: none), id, end, label, id, end, label, …}
-- Twice: reads only.
-- uses: clock, integer, permits
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
local available = stored(count)
local resized = whole(redis.call('HGET', notes, 'capacity'), 'capacity in the notes of a semaphore')
if available and resized then
  available = available + lacking(count, resized, available, redis.call('ZCARD', permits))
end
local reply = {digits(clock()), available and '1' or '0', digits(available or 0), digits(resized or 0)}
local out = redis.call('ZRANGE', permits, 0, -1, 'WITHSCORES')
for i = 1, #out, 2 do
  reply[#reply + 1] = out[i]
  reply[#reply + 1] = digits(tonumber(out[i + 1]))
  reply[#reply + 1] = redis.call('HGET', notes, out[i]) or ''
end
return reply
