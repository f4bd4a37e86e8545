-- Reads the plan of a sharded stock, and moves its opening on.
-- uses: clock
--
-- KEYS[1]  the plan, a hash: see sharded_open.lua
-- ARGV[1]  the epoch of the opening to move on; '' only to read
-- ARGV[2]  the phase to move it to, if it is in an earlier one
-- ARGV[3]  for phase 2, the incarnations of all shards, as their own servers answered them; '' else
-- ARGV[4]  for phase 2, '1' if one of the shards sells
-- ARGV[5]  '1' to write something even if it is in that phase: see own in stock.lua
--
-- Replies  { 0, epoch, phase, shards, total, per, ledger, ms to the start, ms to the end, ms to the removal, 0, incs}
--          { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ''}   there is none
--          {-1, -1, 0}   a hash that is no plan, or one that says less than its shards: nothing changed
--
-- Safe to run twice, and however late: phases only go up, and the incarnations are written once, together with phase 2. Two
-- processes open at the same time: A makes a shard, the shard is lost, B makes it anew. The first of them to come here decides
-- which of the two shards may sell, and both get that answer. So the second one does not let its own shard sell as well
-- (TestNoOrderOfOpeningsLossesAndLateCopiesOversells). A shard sells only after phase 2. If one sells and the plan is in phase 1,
-- a failover has set the plan back, and the incarnations are not written a second time
-- (TestAPlanThatWasSetBackDoesNotNameShardsASecondTime). If the one that sold is lost, none tells. So a caller that waits for
-- replicas has phase 2 confirmed before it lets a shard sell (TestNoShardSellsBeforeReplicasHaveThePlansNames).
local plan, epoch, phase, incs = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local m = redis.call('HMGET', plan, 'epoch', 'phase', 'shards', 'total', 'per', 'ledger', 'start', 'end', 'gone', 'incs')
local none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ''}
if not m[1] then
  if redis.call('EXISTS', plan) == 1 then return {-1, -1, 0} end
  return none
end
local same = m[1] == epoch
for i = 1, 9 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0} end
end
if (m[2] == 1) == (m[10] and true or false) then return {-1, -1, 0} end
local now = clock()
if now >= m[9] then return none end
if same and phase > m[2] then
  if m[2] == 1 then
    if phase ~= 2 or incs == '' or ARGV[4] == '1' then return {-1, -1, 0} end
    m[10] = incs
    redis.call('HSET', plan, 'incs', incs)
  end
  redis.call('HSET', plan, 'phase', phase)
  m[2] = phase
  if redis.call('PTTL', plan) < 0 then redis.call('PEXPIRE', plan, digits(m[9] - now)) end
elseif same and ARGV[5] == '1' then
  redis.call('HSET', plan, 'phase', m[2])
end
return {0, m[1], m[2], m[3], m[4], m[5], m[6], m[7] - now, m[8] - now, m[9] - now, 0, m[10] or ''}
