-- Notes at the giver that units have arrived.
-- uses: clock, stock
--
-- KEYS     those of stock.lua; the hash is that of sharded_prepare.lua: the giver's
-- ARGV[1]  the epoch of the plan
-- ARGV[2]  the giver's incarnation by the plan: see sharded_prepare.lua
-- ARGV[3]  number of the shard that they went to
-- ARGV[4]  number of the transfer
--
-- Replies  { 0, 1, 0}         noted, by this call
--          { 0, 0, 0}         noted before
--          {-6, 0, 0}         there is no shard of that epoch and incarnation
--          {-1, said, found}
--
-- Safe to run twice: only the transfer of that number is touched.
local to, number = ARGV[3], ARGV[4]
local wrong = begin()
if wrong == 'absent' then return {-6, 0, 0} end
if wrong then return wrong end
if digits(epoch) ~= ARGV[1] or redis.call('HGET', stock, 'inc') ~= ARGV[2] then return {-6, 0, 0} end
local last, n = (redis.call('HGET', stock, 'out:' .. to) or '0;0'):match('^(%d+);(%d+)$')
if last ~= number or n == '0' then return {0, 0, 0} end
redis.call('HSET', stock, 'out:' .. to, number .. ';0')
return {0, 1, 0}
