-- Reads the plan of a sharded stock, and moves its opening on.
--
-- KEYS[1]  the plan, a hash: see sharded_open.lua
-- ARGV[1]  the epoch of the opening to move on; '' only to read
-- ARGV[2]  the phase to move it to, if it is in an earlier one
--
-- Replies  { 0, epoch, phase, shards, total, per, ledger, ms to the start, ms to the end, ms to the removal, 0}
--          { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}   there is none
--          {-1, -1, 0}                          a hash that is no plan
--
-- Safe to run twice: phases only go up.
local plan, epoch, phase = KEYS[1], ARGV[1], tonumber(ARGV[2])

local m = redis.call('HMGET', plan, 'epoch', 'phase', 'shards', 'total', 'per', 'ledger', 'start', 'end', 'gone')
local none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
if not m[1] then
  if redis.call('EXISTS', plan) == 1 then return {-1, -1, 0} end
  return none
end
local same = m[1] == epoch
for i = 1, 9 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0} end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= m[9] then return none end
if same and phase > m[2] then
  redis.call('HSET', plan, 'phase', phase)
  m[2] = phase
  if redis.call('PTTL', plan) < 0 then redis.call('PEXPIRE', plan, string.format('%.0f', m[9] - now)) end
end
return {0, m[1], m[2], m[3], m[4], m[5], m[6], m[7] - now, m[8] - now, m[9] - now, 0}
