-- Reads the state of a stock.
--
-- KEYS[1]  the stock, a hash: see open.lua
-- KEYS[2]  the claimants, a hash: see claim.lua
--
-- Replies  {state, limit, sold, seq, epoch, ms to the start, ms to the end, ms to the removal, recorded, found}
--          state: 0 absent, 1 pending, 2 open, 3 ended, 4 closed, -1 numbers that cannot be; times may be negative
--
-- Safe to run twice: it writes nothing.
local stock, users = KEYS[1], KEYS[2]

local m = redis.call('HMGET', stock, 'limit', 'sold', 'seq', 'epoch', 'start', 'end', 'gone', 'recorded', 'state')
if not m[1] then return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
for i = 1, 9 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, 0, 0, 0, 0, 0, 0, 0, -1, 0} end
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= m[7] then return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end

local state = 2
if m[9] ~= 1 then
  state = 4
elseif now >= m[6] then
  state = 3
elseif now < m[5] then
  state = 1
end
return {state, m[1], m[2], m[3], m[4], m[5] - now, m[6] - now, m[7] - now, m[8], redis.call('HLEN', users)}
