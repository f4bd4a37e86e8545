-- Read everything about a lock of any kind, without changing it.
-- uses: clock
-- KEYS[1] the lock  KEYS[2] its queue of waiters  KEYS[3] ends of a read-write lock  KEYS[4] queue of a fair lock
-- KEYS[5] last fencing token  KEYS[6] queue of a read-write lock. KEYS[2] to KEYS[6] are optional.
-- Reply {ms left (-1 without an expiry, -2 not locked), server ms, {field, value, …}, {waiter, µs of its entry, …},
--   {field, end in server ms, …}, {fair waiter, …}, token,
--   {waiter of a read-write lock, its score, …}}
-- Twice: reads only.
local reply = {redis.call('PTTL', KEYS[1]), (clock()), {}, {}, {}, {}, '', {}}
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err and not string.find(fields.err, 'WRONGTYPE', 1, true) then
  return fields -- the user lacks a right
elseif fields.err then -- a plain mutex is a string: its value is the owner
  fields = {redis.call('GET', KEYS[1]), '1'}
end
reply[3] = fields
if KEYS[2] then
  reply[4] = redis.call('ZRANGE', KEYS[2], 0, '+inf', 'BYSCORE', 'WITHSCORES')
  reply[5] = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
  reply[6] = redis.call('LRANGE', KEYS[4], 0, -1)
  reply[7] = redis.call('GET', KEYS[5]) or ''
  reply[8] = redis.call('ZRANGE', KEYS[6], '(0', '+inf', 'BYSCORE', 'WITHSCORES')
end
return reply
