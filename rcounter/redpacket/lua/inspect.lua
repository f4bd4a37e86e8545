-- Reads what a red packet says of itself. Removes it if its retention is over.
-- uses: clock, ends, packet
--
-- KEYS     those of packet.lua
--
-- Replies  {0, epoch, state, shares, total, taken, cents taken, ms to the end, ms to the removal, entries}
--          state: 1 open, 2 refunded
--          {-1, said, found} {-6, 0, 0} {-10, 0, 0} {-13, said, found}   see begin in packet.lua
--
-- Safe to run twice: it writes nothing.
local wrong = begin()
if wrong then return wrong end
return {0, p.epoch, p.state, p.n, p.total, p.taken, p.given, p['end'] - p.now, p.gone - p.now, p.serial - p.moved}
