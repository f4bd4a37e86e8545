-- Sets a counter, keeping the expiry it has.
--
-- KEYS[1]  the counter, a string
-- ARGV[1]  the value
-- ARGV[2]  TTL in ms of a counter that has none, '0' to leave it without one
--
-- Replies  1
--
-- Not safe to run twice: a later run would undo what others added in between. The caller sends it once.
local key, value, ttl = KEYS[1], ARGV[1], ARGV[2]

redis.call('GET', key) -- SET alone would replace a value of another type; this fails with WRONGTYPE
-- One write, so a user who lacks a right has set nothing.
if ttl ~= '0' and redis.call('PTTL', key) < 0 then
  redis.call('SET', key, value, 'PX', ttl)
else
  redis.call('SET', key, value, 'KEEPTTL')
end
return 1
