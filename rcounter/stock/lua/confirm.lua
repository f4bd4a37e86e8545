-- Turns a reservation into a sale.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is sold: see own in stock.lua
-- ARGV[3]  id of the reservation
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, n}   outcome 1, or 2 if another call confirmed it, or 8
--          {-1, said, found}
--          {-2, 0, 0}   the ordinals are used up
--          {-3, 0, 0}   the id is that of something else
--          {-6, 0, 0}   there is no such reservation, or no stock
--          {-7, 0, 0}   its time is over
--          {-8, 0, 0}   it was cancelled
--          {-9, 0, 0}   it was confirmed and returned
--
-- Safe to run twice: the record says who confirmed it.
local call, sure, id = ARGV[1], ARGV[2], ARGV[3]

local wrong = ready({-6, 0, 0})
if wrong then return wrong end
local record = requests > 0 and redis.call('HGET', records, 'r:' .. id)
if not record then return {-6, 0, 0} end
local r = parse(record)
if not r then return {-1, -1, 0} end
if r.state == 'C' then return {-8, 0, 0} end
if r.deadline == 0 and r.asked ~= 0 then return {-3, 0, 0} end
if r.state == 'R' then return {-9, 0, 0} end
if r.state == 'E' then return {-7, 0, 0} end
if r.state == 'G' then
  own(sure)
  return {0, epoch, limit - sold - held, r.by == call and 1 or 2, r.ordinal, r.n}
end
if now >= r.deadline then return {-7, 0, 0} end -- one of more than 128
if state == 3 or state == 5 then return {0, epoch, limit - sold - held, 8, 0, 0} end
if r.n > held then return {-1, -1, 0} end
if seq > 9007199254740991 - r.n then return {-2, 0, 0} end

local before = limit - sold - held
r.state, r.by, r.ordinal = 'G', call, seq + 1
sold, held, seq, waiting = sold + r.n, held - r.n, seq + r.n, waiting - 1
count()
redis.call('ZREM', holds, id)
keep(id, r)
enter('grant', r.ordinal, r.n, r.claimant, id)
-- The units went from held to sold, and none came back. So the flag's text stays. With a new text every process would read all
-- winners again for each payment (TestConfirmsLeaveASoldOutStocksFlagAsItIs,
-- TestConfirmsOfASoldOutStockHaveNobodyReadTheWinnersAgain). The flag ends at the next deadline of a hold. If that was the
-- deadline of this one, the end is later now.
if before == 0 and r.deadline - now <= till() and redis.call('EXISTS', flag) == 1 then redis.call('PEXPIRE', flag, digits(till())) end
settle(before, records)
return {0, epoch, limit - sold - held, 1, r.ordinal, r.n}
