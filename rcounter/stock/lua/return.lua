-- Returns the unit that a claimant has, if it is the one named.
-- uses: rare, state, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  the claimant
-- ARGV[3]  the ordinal of the unit, a decimal from 1
-- ARGV[4]  '1' to write something even if nothing is returned: see touch in rare.lua
--
-- Replies  { 0, 1, 0}          returned, by this call
--          { 0, 0, 0}          the claimant does not have that unit: nothing changed
--          {-6, 0, 0}          no stock
--          {-10, 0, 0}         it does not, and did not return it last, but the stock is suspended: the record may be lost
--          {-1, said, found}   records are missing, or numbers that cannot be: nothing changed
--
-- Safe to run twice: the record says which ordinal was returned last and by which call, so the second run answers as the first
-- did. It never takes a unit that was claimed in between, because that has another ordinal: 'seq', from which ordinals come,
-- only grows. (If that later unit was returned too before the second run, the answer is 0, and nothing changes.)
--
-- The record stays. If it were deleted, the number of records would no longer say whether one is missing. And ann claims, the
-- network holds a copy of that request back, she returns the unit, the copy arrives: without the record it would claim a unit
-- of which no caller knows (testdata/scripts).
local call, user, ordinal = ARGV[1], ARGV[2], ARGV[3]

local wrong = present({-6, 0, 0})
if wrong then return wrong end

local record = redis.call('HGET', s.users, user)
if not record then return {is_suspended() and -10 or 0, 0, 0} end
local has, by, past = record:match('^(%d+);([^;]*)(.*)$')
if not has then return {-1, -1, 0} end
if has == ordinal then
  if s.sold < 1 then return {-1, -1, 0} end
  local before = s.limit - s.sold - s.held
  log_entry('return', ordinal, '1', user, '')
  free()
  append_ledger()
  redis.call('HSET', s.users, user, '0;' .. by .. ';' .. ordinal .. ';' .. call)
  s.sold = s.sold - 1
  count()
  end_write(before)
  endless(s.users)
  return {0, 1, 0}
end
if is_suspended() and not past:find(';' .. ordinal .. ';', 1, true) then return {-10, 0, 0} end
touch(ARGV[4])
if past == ';' .. ordinal .. ';' .. call then return {0, 1, 0} end
return {0, 0, 0}
