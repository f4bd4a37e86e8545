-- Reads what a shard has, and what is on its way from and to it.
-- uses: stock
--
-- KEYS     those of stock.lua; the hash is that of sharded_prepare.lua
-- ARGV[1]  number of shards
-- ARGV[2]  the shard's incarnation by the plan: see sharded_prepare.lua; '' if the plan has none yet
--
-- Replies  { 0, epoch, state, limit, sold, held, seq, ms to the start, ms to the end, ms to the removal, total,
--            1 if it is of that incarnation or none was given, number and n of the last transfer to each shard, number of
--            the last from each}
--          {-6, 0, 0}         there is none
--          {-1, said, found}  records are missing, or it is no shard of so many
--
-- Safe to run twice: all that it writes is that holds whose time is over are ended, as every claim would.
local k = tonumber(ARGV[1])
local wrong = ready({-6, 0, 0})
if wrong then return wrong end

local names = {'shards', 'total', 'inc'}
for i = 0, k - 1 do names[#names + 1] = 'out:' .. i end
for i = 0, k - 1 do names[#names + 1] = 'in:' .. i end
local m = redis.call('HMGET', stock, unpack(names))
local total = tonumber(m[2])
if tonumber(m[1]) ~= k or not total or not m[3] then return {-1, -1, 0} end

local reply = {0, epoch, state, limit, sold, held, seq, start - now, ending - now, gone - now, total, (ARGV[2] == '' or ARGV[2] == m[3]) and 1 or 0}
for i = 1, k do
  local number, n = (m[3 + i] or '0;0'):match('^(%d+);(%d+)$')
  if not number then return {-1, -1, 0} end
  reply[11 + 2 * i], reply[12 + 2 * i] = tonumber(number), tonumber(n)
end
for i = 1, k do
  reply[12 + 2 * k + i] = tonumber(m[3 + k + i] or '0')
  if not reply[12 + 2 * k + i] then return {-1, -1, 0} end
end
return reply
