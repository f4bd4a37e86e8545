-- One step of mending a stock from its owner's records of the sale.
--
-- KEYS     those of stock.lua
-- ARGV[1]  the step
-- ARGV[2]  id of the call that restores
-- ARGV[3…] 'begin'   nothing: suspends the stock
--          'put'     (kind, name, value)…, at most 128 of them: kind 'u' writes the record of a claimant, 'r' a field of KEYS[3]
--          'hold'    (id, deadline)…, at most 128 of them
--          'unhold'  nothing: empties KEYS[4], to be filled by 'hold'
--          'look'    nothing
--          'end'     what 'look' answered when the records were read, then sold, held, seq, limit, and the state to end in
--
-- Replies  { 0, epoch, sold, held, seq, claimants, records, holds, state to end in, limit}
--          {-1, -1, 0}   no stock of ours
--          {-6, 0, 0}    no stock
--          {-10, 0, 0}   'put', 'hold', 'end': another call restores it now; 'end': something changed since 'look'
--
-- Safe to run twice: every step writes what is so, not what is more. It does not begin like the other scripts, since
-- its stock may be one that they refuse.
local step, call = ARGV[1], ARGV[2]
local m = redis.call('HMGET', stock, 'sold', 'held', 'seq', 'gone', 'epoch', 'state', 'restorer', 'before', 'restored', 'limit')
if redis.call('EXISTS', stock) == 0 then return {-6, 0, 0} end
gone, epoch = tonumber(m[4]), tonumber(m[5])
if not gone or not epoch then return {-1, -1, 0} end
local t = redis.call('TIME')
now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= gone then return {-6, 0, 0} end
state = tonumber(m[6]) or 3

if step == 'begin' then
  if state ~= 3 then redis.call('HSET', stock, 'before', text(state)) end
  redis.call('HSET', stock, 'state', 3, 'restorer', call)
  redis.call('DEL', flag)
elseif step == 'end' and m[9] == call then
  return {0, epoch, 0, 0, 0, 0, 0, 0, 0, 0}
elseif m[7] ~= call then
  return {-10, 0, 0}
elseif step == 'put' then
  for i = 3, #ARGV, 3 do redis.call('HSET', ARGV[i] == 'u' and users or records, ARGV[i + 1], ARGV[i + 2]) end
elseif step == 'unhold' then
  redis.call('DEL', holds)
elseif step == 'hold' then
  for i = 3, #ARGV, 2 do redis.call('ZADD', holds, ARGV[i + 1], ARGV[i]) end
end

local seen = {tonumber(m[1]) or 0, tonumber(m[2]) or 0, tonumber(m[3]) or 0, redis.call('HLEN', users), redis.call('HLEN', records), redis.call('ZCARD', holds)}
if step == 'end' then
  for i = 1, 6 do
    if tonumber(ARGV[2 + i]) ~= seen[i] then return {-10, 0, 0} end
  end
  redis.call('HSET', stock, 'sold', ARGV[9], 'held', ARGV[10], 'seq', ARGV[11], 'recorded', text(seen[4]), 'requests', text(seen[5]),
    'holds', text(seen[6]), 'limit', ARGV[12], 'state', ARGV[13], 'restorer', '', 'restored', call)
  redis.call('HDEL', stock, 'before')
end
for i = 1, 6 do
  if i ~= 5 then redis.call('PEXPIRE', KEYS[i], text(gone - now)) end
end
return {0, epoch, seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], tonumber(m[8]) or (state == 3 and 1 or state), tonumber(m[10]) or 0}
