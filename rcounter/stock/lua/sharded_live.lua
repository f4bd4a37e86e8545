-- Lets a shard sell.
-- uses: clock, stock
--
-- KEYS     those of stock.lua; the hash is that of sharded_prepare.lua
-- ARGV[1]  the epoch of the plan
-- ARGV[2]  the shard's incarnation by the plan: see sharded_prepare.lua
--
-- Replies  { 0, state, 0}
--          {-6, 0, 0}         there is none of that epoch and incarnation
--          {-1, said, found}
--
-- Safe to run twice: a shard that sells, or was closed, stays as it is. Safe however late: a shard that was lost and made anew
-- since is another incarnation, and the plan names only one (TestNoOrderOfOpeningsLossesAndLateCopiesOversells).
local wrong = begin()
if wrong == 'absent' then return {-6, 0, 0} end
if wrong then return wrong end
if digits(epoch) ~= ARGV[1] or redis.call('HGET', stock, 'inc') ~= ARGV[2] then return {-6, 0, 0} end
if state == 4 then
  state = 1
  redis.call('HSET', stock, 'state', 1)
  if redis.call('PTTL', stock) < 0 then redis.call('PEXPIRE', stock, digits(gone - now)) end
end
return {0, state, 0}
