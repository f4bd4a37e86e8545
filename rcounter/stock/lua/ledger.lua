-- Reads the first entries of a stock's ledger.
-- uses: ledger, state
--
-- KEYS     those of stock.lua
-- ARGV[1]  how many at most
-- ARGV[2]  '1' to write something if there are entries: the caller waits for replicas, and WAIT waits only for what its own
--          connection has written, as touch in rare.lua says
--
-- Replies  {{0, 0, 0}, entries}          as XRANGE has them
--          {{-13, should be, found}, {}} entries are missing, or there are too many
--          {{-1, -1, 0}, {}}             numbers that cannot be
--
-- This script does not begin like the others: what the ledger of a stock has that lost other keys, or its hash, is read all the same.
--
-- Safe to run twice: it writes nothing, or what is there already.
local m = redis.call('HMGET', s.stock, 'ledger', 'serial', 'moved')
if m[1] == '1' then
  s.serial, s.moved = tonumber(m[2]), tonumber(m[3])
  local wrong = ledger_mismatch(s.ledger, s.serial, s.moved)
  if s.serial == -1 and s.moved then return {{0, 0, 0}, {}} end -- Restore writes it anew
  if wrong then return {wrong, {}} end
end
local entries = redis.call('XRANGE', s.ledger, '-', '+', 'COUNT', ARGV[1])
if ARGV[2] == '1' and m[1] and #entries > 0 then redis.call('HSET', s.stock, 'ledger', m[1]) end
return {{0, 0, 0}, entries}
