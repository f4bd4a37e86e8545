-- One step of restoring a stock from its owner's records of the sale.
-- uses: clock, integer, rare
--
-- KEYS     those of stock.lua
-- ARGV[1]  the step
-- ARGV[2]  id of the round that restores
-- ARGV[3…] 'look'    nothing
--          'begin'   the revision that it means to suspend, and the server's ms until which it may: suspends the stock
--          'again'   id of the round before: takes over from that one, and has others change nothing meanwhile
--          'put'     (kind, name, old, new)…, at most 128 of them: kind 'u' writes the record of a claimant, 'r' a field of
--                    KEYS[3]; old is what it was when it was read, '' for none
--          'unhold'  nothing: empties KEYS[4], to be filled by 'hold'
--          'hold'    (id, deadline)…, at most 128 of them
--          'relist'  nothing: empties the ledger, to be filled by 'lines'
--          'lines'   (serial, and the fields of an entry)…, at most 128 of them
--          'end'     what 'look' answered when the records were read, from sold to holds, then sold, held and seq as they
--                    are to be, the serial of the ledger's last entry, and how many entries there should be, '' if they stayed
--                    as they were: lets the stock sell on, if it is neither closed nor paused
--
-- Replies  { 0, epoch, sold, held, seq, claimants, records, holds, revision, ms, serial, moved}   ms is the server's time; serial is
--                        -2 without a ledger, and -1 from 'relist' to 'end'
--          {-1, -1, 0}   no stock of ours
--          {-6, 0, 0}    no stock
--          {-10, 0, 0}   all but 'look' and 'begin': another round restores it now
--          {-11, 0, 0}   'begin': it is another revision now, or too late; 'put', 'end': something has changed since it was
--                        read. Nothing is written
--
-- Safe to run twice, and however late. 'begin' needs the revision that its call got, and raises it; so a late copy does not
-- suspend a stock that sells (TestRestore_LateCopy_SuspendsNothing). Every other step needs the id of its round, which stands in the
-- hash from 'begin' or 'again' to 'end' or to the next round (TestRestore_LateCopies_ChangeNothing). Within a round a step
-- writes values, not differences. A late 'relist' leaves too few entries, and 'end' sees that. This script does not begin like the others, since they may refuse its stock.
local GOES_ON = 60000 -- for so many ms after a step others hear that the stock is being restored
local step, call = ARGV[1], ARGV[2]
local m = redis.call('HMGET', s.stock, 'sold', 'held', 'seq', 'gone', 'epoch', 'state', 'restorer', 'revision', 'restored', 'limit', 'ledger', 'serial', 'moved')
if redis.call('EXISTS', s.stock) == 0 then return {-6, 0, 0} end
s.gone, s.epoch = read_integer(m[4]), read_integer(m[5])
if not s.gone or not s.epoch then return {-1, -1, 0} end
s.now = clock()
if expired(s.gone, s.now) then return {-6, 0, 0} end
s.state = read_integer(m[6]) or 3
local revision = read_integer(m[8]) or -1

local seen = {read_integer(m[1]) or 0, read_integer(m[2]) or 0, read_integer(m[3]) or 0, redis.call('HLEN', s.users), redis.call('HLEN', s.records), redis.call('ZCARD', s.holds)}
local function reply() return {0, s.epoch, seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], revision, s.now, s.serial, s.moved} end
s.keeps = tonumber(m[11])
s.serial, s.moved = s.keeps == 1 and (read_integer(m[12]) or 0) or -2, read_integer(m[13]) or 0

if step == 'look' or step == 'end' and m[9] == call then
  return reply()
elseif step == 'begin' then
  if m[7] ~= call then
    if revision ~= tonumber(ARGV[3]) or expired(ARGV[4], s.now) then return {-11, 0, 0} end
    redis.call('HSET', s.stock, 'state', s.state == 2 and 5 or s.state == 1 and 3 or s.state == 6 and 7 or s.state, 'restorer', call, 'revision', digits(revision + 1))
    redis.call('HDEL', s.stock, 'alone') -- of one that was broken off
    redis.call('DEL', s.flag)
  end
elseif step == 'again' and m[7] == ARGV[3] then
  redis.call('HSET', s.stock, 'restorer', call, 'alone', 1)
elseif m[7] ~= call then
  return {-10, 0, 0}
elseif step == 'put' then
  for i = 3, #ARGV, 4 do
    local is = redis.call('HGET', ARGV[i] == 'u' and s.users or s.records, ARGV[i + 1]) or ''
    if is ~= ARGV[i + 2] and is ~= ARGV[i + 3] then return {-11, 0, 0} end
  end
  for i = 3, #ARGV, 4 do redis.call('HSET', ARGV[i] == 'u' and s.users or s.records, ARGV[i + 1], ARGV[i + 3]) end
elseif step == 'unhold' then
  redis.call('UNLINK', s.holds)
elseif step == 'hold' then
  for i = 3, #ARGV, 2 do redis.call('ZADD', s.holds, ARGV[i + 1], ARGV[i]) end
elseif step == 'relist' then
  redis.call('UNLINK', s.ledger)
  redis.call('HSET', s.stock, 'serial', -1)
  s.serial = -1
elseif step == 'lines' then
  for i = 3, #ARGV, 8 do
    if #redis.call('XRANGE', s.ledger, ARGV[i] .. '-0', '+', 'COUNT', 1) == 0 then
      redis.call('XADD', s.ledger, ARGV[i] .. '-0', 'k', ARGV[i + 1], 'e', ARGV[i + 2], 'o', ARGV[i + 3], 'n', ARGV[i + 4], 'c', ARGV[i + 5],
        'r', ARGV[i + 6], 'at', ARGV[i + 7])
    end
  end
elseif step == 'end' then
  for i = 1, 6 do
    if tonumber(ARGV[2 + i]) ~= seen[i] then return {-11, 0, 0} end
  end
  local n = redis.call('XLEN', s.ledger)
  if ARGV[13] ~= '' and ARGV[13] + 0 ~= n then return {-11, 0, 0} end
  if s.keeps == 1 then redis.call('HSET', s.stock, 'serial', ARGV[12], 'moved', digits(ARGV[12] - n)) end
  -- The limit and the state are those of now. A Change or an EndSale may have come while the stock was restored, and both stand
  -- (TestRestore_SaleChangedMeanwhile_KeepsTheChange).
  local least = tonumber(ARGV[9]) + tonumber(ARGV[10])
  redis.call('HSET', s.stock, 'sold', ARGV[9], 'held', ARGV[10], 'seq', ARGV[11], 'recorded', digits(seen[4]), 'requests', digits(seen[5]),
    'holds', digits(seen[6]), 'limit', digits(math.max(tonumber(m[10]) or 0, least)), 'state', s.state == 3 and 1 or s.state == 7 and 6 or 2, 'restorer', '', 'restored', call)
end
if step == 'end' then
  redis.call('HDEL', s.stock, 'restoring', 'alone')
else
  redis.call('HSET', s.stock, 'restoring', digits(s.now + GOES_ON))
end
ends()
return reply()
