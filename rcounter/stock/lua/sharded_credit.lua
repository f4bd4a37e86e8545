-- Adds units that were on their way to a shard, once.
-- uses: clock, stock
--
-- KEYS     those of stock.lua; the hash is that of sharded_prepare.lua: the receiver's
-- ARGV[1]  the epoch of the plan
-- ARGV[2]  the receiver's incarnation by the plan: see sharded_prepare.lua
-- ARGV[3]  '1' to write something even if nothing is added: see own in stock.lua
-- ARGV[4]  number of the shard that they come from
-- ARGV[5]  number of the transfer
-- ARGV[6]  how many
--
-- Replies  { 0, 1, n}         added, by this call
--          { 0, 0, 0}         added before
--          {-6, 0, 0}         there is no shard of that epoch and incarnation
--          {-1, said, found}
--
-- Safe to run twice, and however late: the transfers between two shards are numbered and come one after the other, and the
-- receiver keeps the number of the last (TestACreditIsAddedOnceHoweverLateItComes). A receiver that was lost and made anew does
-- not have that number, but it is another incarnation and refuses.
local sure, from, number, n = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local wrong = begin()
if wrong == 'absent' then return {-6, 0, 0} end
if wrong then return wrong end
local m = redis.call('HMGET', stock, 'shards', 'total', 'in:' .. from, 'inc')
if digits(epoch) ~= ARGV[1] or m[4] ~= ARGV[2] then return {-6, 0, 0} end
local total, last = tonumber(m[2]), tonumber(m[3] or '0')
if not tonumber(m[1]) or not total or not last then return {-1, -1, 0} end
if number <= last then
  own(sure)
  return {0, 0, 0}
end
if limit + n > total then return {-1, -1, 0} end
local before = limit - sold - held
limit = limit + n
redis.call('HSET', stock, 'limit', digits(limit), 'in:' .. from, digits(number))
settle(before)
return {0, 1, n}
