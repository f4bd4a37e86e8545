-- Look at a semaphore without changing it.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- Reply {1 if the count is there, available, out, capacity of the last resize (0: none)}; leases that are over count as given back
-- Twice: reads only.
-- uses: clock, integer, permits
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
local available = stored(count)
local over, out = redis.call('ZCOUNT', permits, '-inf', elapsed((clock()))), redis.call('ZCARD', permits)
local resized = whole(redis.call('HGET', notes, 'capacity'), 'capacity in the notes of a semaphore')
if available then
  available = available + lacking(count, resized, available, out)
end
return {available and 1 or 0, (available or 0) + over, out - over, resized or 0}
