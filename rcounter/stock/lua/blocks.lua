-- Reads one page of a stock's blocks.
-- uses: stock
--
-- KEYS     those of stock.lua; the records are those of block.lua
-- ARGV[1]  where the page begins, an HSCAN cursor
-- ARGV[2]  about how many fields are looked at
--
-- Replies  {{0, epoch, now}, cursor, {id, block, units, id, block, units …}}
--          {{-1, said, found}, '0', {}}
--          {{-6, 0, 0}, '0', {}}   no stock
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local wrong = begin()
if wrong == 'absent' then return {{-6, 0, 0}, '0', {}} end
if wrong then return {wrong, '0', {}} end

local page = redis.call('HSCAN', stock, ARGV[1], 'MATCH', 'block:*', 'COUNT', ARGV[2])
local out = {}
for i = 1, #page[2], 2 do
  local id = page[2][i]:sub(7)
  local units = redis.call('HGET', records, 'a:' .. id)
  if not units then return {{-1, -1, 0}, '0', {}} end
  out[#out + 1] = id
  out[#out + 1] = page[2][i + 1]
  out[#out + 1] = units
end
return {{0, epoch, now}, page[1], out}
