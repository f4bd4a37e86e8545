-- Closes a stock for good: no more grants. What was granted stays readable for as long as before.
--
-- KEYS[1]  the stock, a hash: see open.lua
--
-- Replies  1 closed, now or before; 0 there is none
--
-- Safe to run twice: the second run finds the stock closed and writes the same.
local stock = KEYS[1]

local gone = tonumber(redis.call('HGET', stock, 'gone'))
if not gone then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= gone then return 0 end
redis.call('HSET', stock, 'state', 2)
if redis.call('PTTL', stock) < 0 then redis.call('PEXPIRE', stock, string.format('%.0f', gone - now)) end
return 1
