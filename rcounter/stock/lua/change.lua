-- Changes what Open has set: how many units there are, how many of them a claimant may have, when the sale starts and ends, and whether
-- it is paused.
-- uses: clock, integer, rare, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  the revision that this call means to change, '' to ask for it
-- ARGV[3]  the server's ms until which this call may act, 0 to ask for the revision and the server's time
-- ARGV[4…] pairs: 'limit' and how many units; 'per' and how many of them a claimant may have; 'start', 'end' and the ms from now; the
--          retention after the end is as long as before; 'paused' and '1' or '0'
--
-- Replies  { 0, revision, 1, ms, left}   it is so, by this call. ms is the server's time, left the ms to the removal of all keys
--          { 0, revision, 0, ms, left}   the revision asked for, or another than meant: nothing changed
--          {-1, said, found}
--          {-5, sold + held, 0}   more are sold and held than that: nothing changed
--          {-6, 0, 0}             no stock
--          {-11, ms, 0}           the call is too late: nothing changed
--          {-12, 0, 0}            call again, see reap_more in rare.lua
--
-- Safe to run twice: the revision counts the changes, and the hash names the call that made the last one. So a copy that comes
-- after another call's change changes nothing. It changes nothing in another opening either, whose revisions begin at its
-- epoch: the stock may have been lost and opened again since the revision was asked for
-- (TestOpen_LateCopiesOfAnotherOpening_ChangeNothing). And a copy that comes after its caller's patience changes nothing: a late
-- 'end' would move the end, since it counts from when it runs. All pairs are checked before the first write.
--
-- The keys get their new end before the hash says so. If the run is broken off in between, the keys outlive what the hash says, and
-- the next call removes them. The other way round the keys would be gone while the hash says that the sale goes on.
--
-- The flag goes with every change but that of the limit, which may leave it. Otherwise a process that knows the stock sold out would
-- answer SoldOut while it is paused, before a start that was put off, or after an end that came sooner (TestSoldOut_PausedOrOver_IsNotSaid).
local call, revision, notafter, to = ARGV[1], ARGV[2], tonumber(ARGV[3]), {}
for i = 4, #ARGV, 2 do to[ARGV[i]] = tonumber(ARGV[i + 1]) end

local wrong = present({-6, 0, 0})
if wrong then return wrong end
local m = redis.call('HMGET', s.stock, 'revision', 'resizer')
local is = read_integer(m[1])
if not is then return {-1, -1, 0} end
if m[2] == call then return {0, is, 1, s.now, s.gone - s.now} end
if revision ~= m[1] or notafter == 0 then return {0, is, 0, s.now, s.gone - s.now} end
if expired(notafter, s.now) then return {-11, s.now, 0} end
wrong = reap(128)
if wrong then return wrong end
if to.limit and to.limit < s.sold + s.held then return reap_more() or {-5, s.sold + s.held, 0} end

local before = s.limit - s.sold - s.held
s.limit, s.per = to.limit or s.limit, to.per or s.per
if to.start then s.start = s.now + to.start end
if to['end'] then
  s.gone = s.now + to['end'] + s.gone - s.ending
  s.ending = s.now + to['end']
  ends()
end
if to.paused == 1 then
  s.state = s.state == 1 and 6 or s.state == 3 and 7 or s.state
elseif to.paused == 0 then
  s.state = s.state == 6 and 1 or s.state == 7 and 3 or s.state
end
redis.call('HSET', s.stock, 'limit', digits(s.limit), 'per', digits(s.per), 'state', digits(s.state), 'start', digits(s.start), 'end', digits(s.ending),
  'gone', digits(s.gone), 'revision', digits(is + 1), 'resizer', call)
if to.start or to['end'] or to.paused then redis.call('DEL', s.flag) end
end_write(before)
endless(s.records)
return {0, is + 1, 1, s.now, s.gone - s.now}
