-- Reads what a claimant has.
--
-- KEYS[1]  the stock, a hash: see claim.lua
-- KEYS[2]  the claimants, a hash: see claim.lua
-- ARGV[1]  the claimant
--
-- Replies  { 0, epoch, remaining, ordinal}   ordinal 0: none; epoch 0: no stock
--          {-1, recorded, found, 0}          records are missing, this claimant's perhaps, or numbers that cannot be
--
-- Safe to run twice: it writes nothing.
local stock, users, user = KEYS[1], KEYS[2], ARGV[1]

local m = redis.call('HMGET', stock, 'limit', 'sold', 'recorded', 'gone', 'epoch')
if not m[1] then return {0, 0, 0, 0} end
for i = 1, 5 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0, 0} end
end

local t = redis.call('TIME')
if t[1] * 1000 + math.floor(t[2] / 1000) >= m[4] then return {0, 0, 0, 0} end

local found = redis.call('HLEN', users)
if found ~= m[3] then return {-1, m[3], found, 0} end

local record, ordinal = redis.call('HGET', users, user), 0
if record then
  ordinal = tonumber(record:match('^(%d+);') or '')
  if not ordinal then return {-1, -1, 0, 0} end
end
return {0, m[5], m[1] - m[2], ordinal}
