-- Returns a part of the units that a call took without a claimant, or gives the call up.
-- uses: clock, rare, state, stock
--
-- KEYS     those of stock.lua; the record is that of any.lua
-- ARGV[1]  id of this call
-- ARGV[2]  id of the call that took the units
-- ARGV[3]  the first ordinal to return; '0' to give the call up: all that it took is returned, unless a part was before; if it
--          has not run yet, it never will
-- ARGV[4]  how many
-- ARGV[5]  '1' to write something even if nothing is returned: see touch in rare.lua
--
-- Replies  { 0, n, 0}   n returned, by this call
--          { 0, 0, 0}   nothing returned, or the call was given up before it ran: they are not that call's, or some of them were returned before
--          {-1, said, found}
--          {-6, 0, 0}   no stock
--          {-10, 0, 0}  there is no record of that call, but the stock is suspended: it may be lost
--          {-4, 0, 0}   the record has too many parts: nothing returned
--
-- Safe to run twice: the part in the record names the call that returned it.
local call, id, from, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local wrong = present({-6, 0, 0})
if wrong then return wrong end
local before = s.limit - s.sold - s.held

local record = s.requests > 0 and redis.call('HGET', s.records, 'a:' .. id)
if not record then
  if from ~= 0 then return {is_suspended() and -10 or 0, 0, 0} end
  forbid(id, call)
  return {0, 0, 0}
end
local ordinal, got, parts = record:match('^(%d+);(%d+)(.*)$')
if not got then return {-1, -1, 0} end
if got == '0' then return {0, 0, 0} end
ordinal, got = tonumber(ordinal), tonumber(got)

local last, pieces = from + n - 1, 0
for f, c, by in parts:gmatch(';(%d+)%.(%d+)%.([^;]*)') do
  f, c, pieces = tonumber(f), tonumber(c), pieces + 1
  if by == call or from == 0 or f <= last and from <= f + c - 1 then
    touch(ARGV[5])
    return {0, by == call and c or 0, 0}
  end
end
if from == 0 then
  from, n = ordinal, got
elseif from < ordinal or last > ordinal + got - 1 then
  return {0, 0, 0}
end
if pieces >= 1024 then return {-4, 0, 0} end
if n > s.sold then return {-1, -1, 0} end
log_entry('return', digits(from), digits(n), '', id)
free()
append_ledger()
redis.call('HSET', s.records, 'a:' .. id, record .. ';' .. digits(from) .. '.' .. digits(n) .. '.' .. call)
s.sold = s.sold - n
count()
end_write(before)
endless(s.records)
return {0, n, 0}
