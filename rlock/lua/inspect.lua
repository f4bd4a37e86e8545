-- Read everything about a lock of any kind, without changing it.
-- uses: clock
-- KEYS[1] the lock  KEYS[2] its queue of waiters  KEYS[3] ends of a read-write lock  KEYS[4] queue of a fair lock
-- KEYS[5] last fencing token  KEYS[6] queue of a read-write lock; the lock alone will do
-- Reply {ms left (-1 without end, -2 not locked), server ms, {field, value, …}, {waiter, µs when it came, …},
--   {field, end in server ms, …}, {fair waiter, …}, token,
--   {waiter of a read-write lock, its score, …}}
-- Twice: reads only.
local reply = {redis.call('PTTL', KEYS[1]), (clock()), {}, {}, {}, {}, '', {}}
local all = redis.pcall('HGETALL', KEYS[1])
if all.err and not string.find(all.err, 'WRONGTYPE', 1, true) then
  return all -- a right is missing
elseif all.err then -- a plain mutex is a string, its owner
  all = {redis.call('GET', KEYS[1]), '1'}
end
reply[3] = all
if KEYS[2] then
  reply[4] = redis.call('ZRANGE', KEYS[2], 0, '+inf', 'BYSCORE', 'WITHSCORES')
  reply[5] = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
  reply[6] = redis.call('LRANGE', KEYS[4], 0, -1)
  reply[7] = redis.call('GET', KEYS[5]) or ''
  reply[8] = redis.call('ZRANGE', KEYS[6], '(0', '+inf', 'BYSCORE', 'WITHSCORES')
end
return reply
