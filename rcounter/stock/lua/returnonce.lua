-- Returns the units that a request took, or a reservation that was confirmed.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  id of the request
--
-- Replies  { 0, n, 0}   n units returned, by this call
--          { 0, 0, 0}   there is nothing to return: never claimed, or returned before
--          {-1, said, found}
--
-- Safe to run twice: the record names the call that returned it. The record stays, and a late copy of the request finds it:
-- otherwise that copy would claim units again (TestClaimsOfSeveralUnitsAreGrantedInPartAndReturnedOnce).
local call, id = ARGV[1], ARGV[2]

local wrong = present({0, 0, 0})
if wrong then return wrong end
local record = requests > 0 and redis.call('HGET', records, 'r:' .. id)
if not record then return {0, 0, 0} end
local r = parse(record)
if not r then return {-1, -1, 0} end
if r.state == 'R' and r.by == call then return {0, r.n, 0} end
if r.state ~= 'G' then return {0, 0, 0} end
if r.n > sold then return {-1, -1, 0} end

local before = limit - sold - held
r.state, r.by, sold = 'R', call, sold - r.n
keep(id, r)
redis.call('HINCRBY', records, 'u:' .. r.claimant, digits(-r.n))
count()
enter('return', r.ordinal, r.n, r.claimant, id)
settle(before, records)
return {0, r.n, 0}
