-- Makes one shard of a sharded stock, if it is not there. It does not sell before sharded_live.lua.
-- uses: clock, ends, stock
--
-- KEYS     those of stock.lua. The hash of a shard has, beside what open.lua says: shards, index, total; inc, its incarnation:
--          the server's time in us when it was made, '-', and the id of the call that made it; state 4: it does not
--          sell yet; 'out:' and the number of another shard -> 'number;n', the last transfer to it and how many units of
--          that are on their way, 0 for none; 'in:' and a number -> the number of the last transfer that came from there
-- ARGV[1]  the epoch of the plan
-- ARGV[2]  how many units this shard begins with, 0 for none
-- ARGV[3]  units a claimant may have
-- ARGV[4]  ms from now to the start
-- ARGV[5]  ms from now to the end
-- ARGV[6]  ms from now to the removal of all keys
-- ARGV[7]  '1' if it keeps a ledger
-- ARGV[8]  number of shards
-- ARGV[9]  which one this is, from 0
-- ARGV[10] units of all shards
-- ARGV[11] id of this call
--
-- Replies  { 0, state, 0, inc}   it is there, made by this call or another
--          { 1, epoch, 0}     a shard of another opening, or a stock, is there: nothing changed
--          {-1, said, found}  records of a stock are there and the stock is not (said is 0), or a hash that is no
--                             stock (said is -1): nothing changed
--
-- Safe to run twice: the second run finds the shard of that epoch. A shard that never sold, of an opening that was given up,
-- makes room for a later opening.
--
-- Safe however late: the shard is made, sells, and is lost with all that it had sold. A late copy finds nothing and makes it
-- anew. But its server names it, by another incarnation; the plan has the first one, and sharded_live.lua lets no other sell. If
-- the caller chose the name, the late copy would give the new shard the name that may sell
-- (TestNoOrderOfOpeningsLossesAndLateCopiesOversells has that rule as a mutant). The id of the call is in the name for a clock
-- that is set back to the same us (TestAShardMadeAnewInTheSameMicrosecondIsAnother).
local want = ARGV[1]
now, micros = clock()

local m = redis.call('HMGET', stock, 'epoch', 'state', 'gone', 'seq', 'inc')
local there = redis.call('EXISTS', stock) == 1
if there then
  local e, g = tonumber(m[1]), tonumber(m[3])
  state, seq = tonumber(m[2]), tonumber(m[4])
  if not (e and g and state and seq) then return {-1, -1, 0} end
  if now < g then
    if m[1] == want then
      if not m[5] then return {-1, -1, 0} end
      return {0, state, 0, m[5]}
    end
    if state ~= 4 or seq > 0 or e > tonumber(want) then return {1, e, 0} end
  end
end
local found = there and 0 or strays()
if found > 0 then return {-1, 0, found} end

remove()
local inc = digits(micros) .. '-' .. ARGV[11]
redis.call('HSET', stock, 'limit', ARGV[2], 'sold', 0, 'held', 0, 'seq', 0, 'recorded', 0, 'requests', 0, 'holds', 0, 'per', ARGV[3],
  'start', digits(now + tonumber(ARGV[4])), 'end', digits(now + tonumber(ARGV[5])), 'gone', digits(now + tonumber(ARGV[6])), 'epoch', want,
  'state', 4, 'token', 'shard', 'turn', 0, 'ledger', ARGV[7], 'revision', want, 'shards', ARGV[8], 'index', ARGV[9], 'total', ARGV[10],
  'inc', inc)
if ARGV[7] == '1' then redis.call('HSET', stock, 'serial', 0, 'moved', 0) end
redis.call('PEXPIRE', stock, ARGV[6])
return {0, 4, 0, inc}
