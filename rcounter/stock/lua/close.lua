-- Closes a stock for good: no more grants. What was granted stays readable for as long as before. Or removes all of it.
-- uses: clock, ends, integer, rare
--
-- KEYS     those of stock.lua
-- ARGV[1]  the epoch of the opening to close, '' to ask for it; 0: of what is left of a stock whose hash was lost
-- ARGV[2]  'end' or 'delete'
--
-- Replies  { 0, epoch, 1}    closed, now or before, or removed
--          { 0, epoch, 0}    the epoch asked for, or another than meant: nothing changed
--          {-6, 0, 0}        there is none
--
-- Safe to run twice: the second run finds the stock closed and writes the same. Safe however late: a copy that comes after
-- the stock was lost and opened again names another opening.
--
-- A stock that is closed while it is suspended is both. If it were only closed: a reservation is confirmed before Restore has
-- raised the ordinals, and gets one that was given out (TestRestore_SaleChangedMeanwhile_KeepsTheChange).
--
-- This script does not begin like the others: a stock with records missing can be closed too.
local m = redis.call('HMGET', s.stock, 'gone', 'state', 'epoch')
s.gone, s.epoch = read_integer(m[1]), read_integer(m[3]) or 0
if not s.gone and ARGV[2] == 'delete' then
  if redis.call('EXISTS', unpack(KEYS)) == 0 then return {-6, 0, 0} end
  if ARGV[1] ~= '0' then return {0, 0, 0} end
  remove()
  return {0, 0, 1}
elseif not s.gone then
  if redis.call('EXISTS', s.stock) == 0 then orphaned_records() end
  return {-6, 0, 0}
end
s.now = clock()
if expired(s.gone, s.now) then
  remove()
  return {-6, 0, 0}
end
if digits(s.epoch) ~= ARGV[1] then return {0, s.epoch, 0} end
if ARGV[2] == 'delete' then
  remove()
  return {0, s.epoch, 1}
end
redis.call('HSET', s.stock, 'state', (m[2] == '3' or m[2] == '5' or m[2] == '7') and 5 or 2)
redis.call('DEL', s.flag)
if redis.call('PTTL', s.stock) < 0 then redis.call('PEXPIRE', s.stock, digits(s.gone - s.now)) end
return {0, s.epoch, 1}
