-- Reads the state of a stock.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
--
-- Replies  {state, limit, sold, seq, epoch, ms to the start, ms to the end, ms to the removal, said, found, held, reservations held, of the ledger}
--          state: 0 absent, 1 pending, 2 open, 3 ended, 4 closed, 5 suspended, 6 paused, -1 numbers that cannot be; times may be
--          negative; said and found are those of begin, or equal, and of the ledger's entries if the last is 1
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local wrong = begin()
if wrong == 'absent' then return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
if wrong and wrong[2] == -1 then return {-1, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0} end
wrong = wrong or {0, 0, 0}

local life = 2
if state == 3 or state == 7 then
  life = 5
elseif state ~= 1 and state ~= 6 then
  life = 4
elseif begun(ending, now) then
  life = 3
elseif state == 6 then
  life = 6
elseif not begun(start, now) then
  life = 1
end
return {life, limit, sold, seq, epoch, start - now, ending - now, gone - now, wrong[2], wrong[3], held, waiting, wrong[1] == -13 and 1 or 0}
