-- Everything there is to know of a read-write lock, without changing it.
-- KEYS[1] the lock  KEYS[2] its ends
-- Reply as inspect.lua; the end of a field that has its own follows as "field!", server ms
-- Twice: reads only.
local reply = {redis.call('PTTL', KEYS[1]), clock()}
for _, v in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = v
end
local known = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'WITHSCORES')
for i = 1, #known, 2 do
  reply[#reply + 1] = known[i] .. '!'
  reply[#reply + 1] = known[i + 1]
end
return reply
