-- Sells up to n units as a block, to be handed out by one process.
-- uses: clock, stock
--
-- KEYS     those of stock.lua. The units are recorded in KEYS[3] under 'a:' and the id, as any.lua does; the stock's hash
--          has 'block:' and the id -> 'state;taken;deadline;owner', where state is O while its owner may hand out
--          units, C closed by it, S settled by another (owner is then the id of the call that did it); taken is how
--          many units the owner said to have handed out, in the order of their ordinals
-- ARGV[1]  id of the block
-- ARGV[2]  '1' to write something even if nothing is granted: see own in stock.lua
-- ARGV[3]  n, a decimal from 1
-- ARGV[4]  ms from now until its owner stops handing out units
-- ARGV[5]  the name of that owner
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, n}
--          {-1, said, found}
--          {-2, 0, 0}   the ordinals are used up: nothing granted
--          {-12, 0, 0}  call again, see more in stock.lua: nothing granted
--          outcomes: those of any.lua; 9: given up before it ran, or closed
--
-- Safe to run twice: the second run finds the record of the first. (It does not prolong the block.)
local id, sure, n = ARGV[1], ARGV[2], tonumber(ARGV[3])

local wrong = ready({0, 0, 0, 4, 0, 0})
if wrong then return wrong end

local function over()
  local block = redis.call('HGET', stock, 'block:' .. id)
  return not block or block:byte(1) ~= 79 -- 'O'
end
return replay(id, sure, over) or sell(id, n, 'O;0;' .. digits(now + tonumber(ARGV[4])) .. ';' .. ARGV[5])
