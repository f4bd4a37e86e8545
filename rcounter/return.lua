-- Returns the unit that a claimant has, if it is the one named.
--
-- KEYS[1]  the stock, a hash: see claim.lua
-- KEYS[2]  the claimants, a hash: see claim.lua
-- ARGV[1]  id of this call
-- ARGV[2]  the claimant
-- ARGV[3]  the ordinal of the unit, a decimal from 1
--
-- Replies  { 0, 1, 0}              returned, by this call
--          { 0, 0, 0}              the claimant does not have that unit: nothing changed
--          {-1, recorded, found}   records are missing, or numbers that cannot be: nothing changed
--
-- Safe to run twice: the record says which ordinal was returned last and by which call, so the second run answers as
-- the first did. It never takes a unit claimed in between, because that has another ordinal: 'seq', from which
-- ordinals come, does not go back. (If that later unit too has been returned before the duplicate runs, its answer is
-- 0; it changes nothing.)
--
-- The record is written before the count: a run broken off between the two sells too little, never too much. It is
-- not deleted, so that the number of records goes on saying whether any are lost.
local stock, users, call, user, ordinal = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local m = redis.call('HMGET', stock, 'limit', 'sold', 'recorded', 'gone')
if not m[1] then return {0, 0, 0} end
for i = 1, 4 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0} end
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= m[4] then return {0, 0, 0} end

local found = redis.call('HLEN', users)
if found ~= m[3] then return {-1, m[3], found} end

local record = redis.call('HGET', users, user)
if not record then return {0, 0, 0} end
local held, by, past = record:match('^(%d+);([^;]*)(.*)$')
if not held then return {-1, -1, 0} end
if held == ordinal then
  if m[2] < 1 then return {-1, -1, 0} end
  redis.call('HSET', users, user, '0;' .. by .. ';' .. ordinal .. ';' .. call)
  redis.call('HSET', stock, 'sold', string.format('%.0f', m[2] - 1))
  if redis.call('PTTL', users) < 0 or redis.call('PTTL', stock) < 0 then
    local left = string.format('%.0f', m[4] - now)
    redis.call('PEXPIRE', stock, left)
    redis.call('PEXPIRE', users, left)
  end
  return {0, 1, 0}
end
if past == ';' .. ordinal .. ';' .. call then return {0, 1, 0} end
return {0, 0, 0}
