-- Holds n units for a claimant until a deadline.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is held: see own in stock.lua
-- ARGV[3]  id of the reservation
-- ARGV[4]  the claimant
-- ARGV[5]  n, a decimal from 1
-- ARGV[6]  ms from now to the deadline
--
-- Replies  { 0, epoch, remaining, outcome, 0, n, ms left}   held
--          { 0, epoch, remaining, outcome, ordinal, n}        confirmed, or refused: n is 0
--          {-1, said, found}
--          {-3, 0, 0}   the id is that of something else
--          {-7, 0, 0}   its time is over
--          {-8, 0, 0}   it was cancelled
--          {-9, 0, 0}   it was confirmed and returned
--          {-12, 0, 0}  call again, see more in stock.lua: nothing held
--          outcomes: as in claim.lua; 2 is held by an earlier call, or confirmed
--
-- All n or none. Safe to run twice: the second run finds the record of the first, and the deadline stays the first's.
local call, sure, id, claimant, n, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

local wrong = ready({0, 0, 0, 4, 0, 0})
if wrong then return wrong end
local before = limit - sold - held

local record = requests > 0 and redis.call('HGET', records, 'r:' .. id)
if record then
  local r = parse(record)
  if not r then return {-1, -1, 0} end
  if r.state == 'C' and r.n == 0 then return {-8, 0, 0} end
  if r.asked ~= 0 and (r.deadline == 0 or r.asked ~= n) or r.claimant ~= claimant then return {-3, 0, 0} end
  if r.state == 'C' then return {-8, 0, 0} end
  if r.state == 'R' then return {-9, 0, 0} end
  if r.state == 'E' or r.state == 'H' and now >= r.deadline then return {-7, 0, 0} end
  own(sure)
  local won = r.call == call and 1 or 2
  if r.state == 'H' then return {0, epoch, before, won, 0, r.n, r.deadline - now} end
  return {0, epoch, before, won, r.ordinal, r.n}
end

local has, counted = bought(claimant)
wrong = refuse(n, per - has)
if wrong then return wrong end
if before < n then return {0, epoch, before, 3, 0, 0} end
redis.call('ZCARD', holds) -- a key of another type fails here, before anything is written
if has + n > per then return {0, epoch, before, 7, 0, 0} end

held, waiting, requests = held + n, waiting + 1, requests + (counted and 1 or 2)
count()
keep(id, {state = 'H', ordinal = 0, n = n, asked = n, call = call, by = '', deadline = now + ttl, claimant = claimant})
redis.call('ZADD', holds, digits(now + ttl), id)
redis.call('HINCRBY', records, 'u:' .. claimant, digits(n))
settle(before, records)
return {0, epoch, limit - sold - held, 1, 0, n, ttl}
