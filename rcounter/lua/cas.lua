-- Sets a counter if it has the expected value, keeping the expiry it has.
--
-- KEYS[1]  the counter, a string
-- ARGV[1]  the expected value
-- ARGV[2]  the new value
-- ARGV[3]  what a missing key stands for
-- ARGV[4]  TTL in ms of a counter that has none, '0' to leave it without one
--
-- Replies  {1, value}   set; value is the new one
--          {0, value}   it has another value, perhaps none that is an integer: nothing set
--
-- Not safe to run twice: it would answer 0 after 1. The caller sends it once. An integer has only one decimal form, so comparing
-- the texts compares the numbers, as RAtomicLong does.
local key, old, new, initial, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local value = redis.call('GET', key) or initial
if value ~= old then return {0, value} end
-- One write, so a user who lacks a right has set nothing.
if ttl ~= '0' and redis.call('PTTL', key) < 0 then
  redis.call('SET', key, new, 'PX', ttl)
else
  redis.call('SET', key, new, 'KEEPTTL')
end
return {1, new}
