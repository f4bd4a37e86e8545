-- Ends a reservation before its time, or forbids one that has not been made.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  id of the reservation
--
-- Replies  { 0, 1, 0}   cancelled, by this call
--          { 0, 0, 0}   it was over, confirmed or cancelled before; or there was none, and there never will be; or no stock
--          { 0, 0, 1}   there was none, and by this call there never will be; nothing was left, and no unit came back
--          {-1, said, found}
--          {-3, 0, 0}   the id is that of something else
--
-- Safe to run twice: the record says who cancelled it.
local call, id = ARGV[1], ARGV[2]

local wrong = ready({0, 0, 0})
if wrong then return wrong end
local before = limit - sold - held
local record = requests > 0 and redis.call('HGET', records, 'r:' .. id)
if not record then
  requests = requests + 1
  count()
  keep(id, {state = 'C', ordinal = 0, n = 0, asked = 0, call = '', by = call, deadline = 0, claimant = ''})
  local goes_on = before <= 0 and redis.call('EXISTS', flag) == 1
  settle(before, records)
  -- The processes that answer SoldOut by themselves must hear of the id: the server now has another answer for it. So the flag
  -- gets another text. If the text stayed, they would answer SoldOut for this id for as long as the turn lasts. The turn stays:
  -- a new one would have every process read all winners again for each Cancel
  -- (TestWhatIsCancelledBeforeItIsReservedIsCancelledOnASoldOutStock).
  if goes_on then mark(true) end
  return {0, 0, before <= 0 and 1 or 0}
end
local r = parse(record)
if not r then return {-1, -1, 0} end
if r.state == 'C' then
  if r.by ~= call then return {0, 0, 0} end
  return {0, r.n > 0 and 1 or 0, r.n == 0 and before <= 0 and 1 or 0}
end
if r.deadline == 0 and r.asked ~= 0 then return {-3, 0, 0} end
if r.state ~= 'H' then return {0, 0, 0} end
if now >= r.deadline then return {0, 0, 0} end -- one of more than 128
if r.n > held then return {-1, -1, 0} end

r.state, r.by = 'C', call
keep(id, r)
redis.call('ZREM', holds, id)
redis.call('HINCRBY', records, 'u:' .. r.claimant, digits(-r.n))
held, waiting = held - r.n, waiting - 1
count()
settle(before, records)
return {0, 1, 0}
