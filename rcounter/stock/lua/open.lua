-- Opens a stock. Nothing else ever creates its hash.
-- uses: clock, ends, integer, rare
--
-- KEYS     those of stock.lua. The stock's hash: limit sold held seq, the fields of its other keys recorded requests
--          holds, per start end gone epoch state (1 open, 2 closed, 3 suspended, 5 both, 6 paused, 7 paused and suspended), token (id of the call that opened it),
--          ledger (1 if there is one; then also serial and moved), forbidden (unknown ids that are, see acts.lua; none: 0), remember (ms; without it, as in a
--          stock that an earlier version has opened, nothing is forgotten), revision and resizer (of change.lua), spec ('limit;per;ms;ms;ledger;ms', as it was opened);
--          revision begins at the epoch and not at 0. Otherwise a Change waits in the network, the stock is lost and opened
--          again, and the late Change finds the revision that it names (TestOpen_LateCopiesOfAnotherOpening_ChangeNothing)
-- ARGV[1]  id of this call
-- ARGV[2]  limit
-- ARGV[3]  units a claimant may have
-- ARGV[4]  ms from now to the start
-- ARGV[5]  ms from the start to the end
-- ARGV[6]  ms from the end to the removal of all keys
-- ARGV[7]  '1' if it keeps a ledger
-- ARGV[8]  state: '1' open, '3' suspended
-- ARGV[9]  ms for which the record of a reservation or request that has ended is kept
-- ARGV[10] the server's ms until which this call may open it, '' only to ask
--
-- Replies  { 0, epoch, 1}      opened, by this call
--          { 0, epoch, 0, limit, per, ms from start to end, ms from end to removal, ledger, remember}   it is there, opened by
--                              another call, with these: nothing changed
--          {-1, said, found}   records of a stock are there and the stock is not (said is 0), or a hash that is no
--                              stock (said is -1): nothing changed
--          {-11, ms, 0}        there is none, and it was only asked for or is too late: nothing changed; ms is the
--                              server's time
--
-- Safe to run twice: the first run leaves its call's id in the hash, by which the second knows its own work. Safe however late:
-- the stock is opened, sells, and is lost with all that it had. Now it looks like one that never was, and a copy that the network
-- held back arrives. It must not open the stock, so it names a time of the server's after which it opens nothing
-- (TestOpen_LateCopy_OpensNothing).
--
-- All times in the hash are the server's own, in ms; the arguments are differences. The epoch is the server's time in us, so it
-- differs for every opening of a name.
local token = ARGV[1]
local start_in, open_for, retain = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

s.now, s.micros = clock()

local m = redis.call('HMGET', s.stock, 'token', 'epoch', 'gone', 'spec')
local there = redis.call('EXISTS', s.stock) == 1
if there then
  local e, g = read_integer(m[2]), read_integer(m[3])
  if not e or not g then return {-1, -1, 0} end
  if not expired(g, s.now) then
    if m[1] == token then return {0, e, 1} end
    local out = {0, e, 0}
    for n in (m[4] or ''):gmatch('%d+') do out[#out + 1] = tonumber(n) end
    return out
  end
end

-- There are records without the stock's hash: a sale has lost its hash. Its claimants have units, and an opening over these
-- records would sell them again.
local found = there and 0 or orphaned_records()
if found > 0 then return {-1, 0, found} end

if ARGV[10] == '' or expired(ARGV[10], s.now) then return {-11, s.now, 0} end

remove() -- what is over and not yet removed
s.epoch = s.micros
s.start = s.now + start_in
s.gone = s.start + open_for + retain
redis.call('HSET', s.stock, 'limit', ARGV[2], 'sold', 0, 'held', 0, 'seq', 0, 'recorded', 0, 'requests', 0, 'holds', 0, 'per', ARGV[3],
  'start', digits(s.start), 'end', digits(s.start + open_for), 'gone', digits(s.gone), 'epoch', digits(s.epoch), 'state', ARGV[8], 'token', token,
  'ledger', ARGV[7], 'revision', digits(s.epoch), 'remember', ARGV[9],
  'spec', table.concat({ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7], ARGV[9]}, ';'))
if ARGV[7] == '1' then redis.call('HSET', s.stock, 'serial', 0, 'moved', 0) end
redis.call('PEXPIRE', s.stock, digits(s.gone - s.now))
return {0, s.epoch, 1}
