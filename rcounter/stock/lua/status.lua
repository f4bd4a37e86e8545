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
if wrong and not s.limit then return {0, 0, 0, 0, 0, 0, 0, 0, wrong[2], wrong[3], 0, 0, 0} end -- the hash is lost
wrong = wrong or {0, 0, 0}

local life = 2
if s.state == 3 or s.state == 7 then
  life = 5
elseif s.state ~= 1 and s.state ~= 6 then
  life = 4
elseif begun(s.ending, s.now) then
  life = 3
elseif s.state == 6 then
  life = 6
elseif not begun(s.start, s.now) then
  life = 1
end
return {life, s.limit, s.sold, s.seq, s.epoch, s.start - s.now, s.ending - s.now, s.gone - s.now, wrong[2], wrong[3], s.held, s.waiting, wrong[1] == -13 and 1 or 0}
