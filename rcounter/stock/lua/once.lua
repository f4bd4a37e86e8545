-- Claims up to n units for a claimant under the id of a request.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is granted: see own in stock.lua
-- ARGV[3]  id of the request
-- ARGV[4]  the claimant
-- ARGV[5]  n, a decimal from 1
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, n}   units ordinal to ordinal + n - 1
--          {-1, said, found}                             as in claim.lua
--          {-2, 0, 0}                                    the ordinals are used up: nothing granted
--          {-3, 0, 0}                                    the id is that of something else: nothing granted
--          {-12, 0, 0}                                   call again, see more in stock.lua: nothing granted
--          outcomes: as in claim.lua, and 9: granted to this request and returned
--
-- Safe to run twice: the second run finds the record of the first. A refusal leaves no record, because the same request may be
-- granted later.
local call, sure, id, claimant, n = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local wrong = ready({0, 0, 0, 4, 0, 0})
if wrong then return wrong end

local record = requests > 0 and redis.call('HGET', records, 'r:' .. id)
if record then
  local r = parse(record)
  if not r then return {-1, -1, 0} end
  if r.deadline ~= 0 or r.asked ~= n and r.asked ~= 0 or r.claimant ~= claimant then return {-3, 0, 0} end
  if r.state == 'R' and r.call ~= call then return {0, epoch, limit - sold - held, 9, 0, 0} end
  own(sure)
  return {0, epoch, limit - sold - held, r.call == call and 1 or 2, r.ordinal, r.n}
end

local has, counted = bought(claimant)
wrong = refuse(n, per - has)
if wrong then return wrong end
local before = limit - sold - held
if has >= per then return {0, epoch, before, 7, 0, 0} end
local asked = n
n = math.min(n, before, per - has)
if seq > 9007199254740991 - n then return {-2, 0, 0} end

local ordinal = seq + 1
sold, seq, requests = sold + n, seq + n, requests + (counted and 1 or 2)
count()
keep(id, {state = 'G', ordinal = ordinal, n = n, asked = asked, call = call, by = '', deadline = 0, claimant = claimant})
redis.call('HINCRBY', records, 'u:' .. claimant, digits(n))
enter('grant', ordinal, n, claimant, id)
settle(before, records)
return {0, epoch, limit - sold - held, 1, ordinal, n}
