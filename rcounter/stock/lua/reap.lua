-- Gives back what is held by reservations whose time is over, and forgets records that were kept long enough.
-- uses: rare, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  how many reservations at most
--
-- Replies  { 0, n, held}        n reservations ended, and units held still
--          {-1, said, found}
--
-- Safe to run twice: the second run finds them ended.
local wrong = present({0, 0, 0})
if wrong then return wrong end
local before = s.waiting
wrong = reap(tonumber(ARGV[1]))
if wrong then return wrong end
forget(256)
return {0, before - s.waiting, s.held}
