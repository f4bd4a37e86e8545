-- A stock: its keys, how a script begins that reads it, and how one ends that has written to it.
-- uses: clock, integer, ledger, rare, state
--
-- KEYS[1]  the stock, a hash: see open.lua
-- KEYS[2]  the claimants, a hash: see claim.lua
-- KEYS[3]  the records, a hash: 'r:' and an id -> a request or reservation, see below
--          'a:' and an id -> units without a claimant, see any.lua; 'u:' and a claimant -> units by requests and
--          reservations, those returned or expired taken off
-- KEYS[4]  the holds, a zset: id of a reservation that is held -> its deadline in ms
-- KEYS[5]  the flag, a string: the epoch, while nothing is left. If it was lost, the next refusal sets it
-- KEYS[6]  the ledger, a stream, if the stock keeps one. Its entries are numbered: the first has the id 1-0, the next 2-0. Fields: k
--          kind, e epoch, o first ordinal (0 if it has none), n units, c claimant, r request, at the server's us
-- KEYS[7]  what is to be forgotten, a list: 'ms;state;id', the server's ms until which the record of a reservation or request is
--          kept that has ended, and the state in which it has
--
-- A record of a request or reservation is 'state;ordinal;n;asked;call;by;deadline;claimant'. call is the id of the call that
-- made it, with '+' and the cart's digest if it is a line of one (cart.lua); by the id of the call that changed it last, with '*' and how many
-- units were held if it has fewer now (had in acts.lua). state: G its units are sold, H held, R sold and returned, C cancelled (n is 0
-- if that came before it was made, or it was cancelled or confirmed in vain when it had expired), E expired. deadline is 0 for a request. asked is 0 if Restore made the record and does not
-- know whether it is a request or a reservation.
--
-- The stock's hash ends with the retention. The keys of claimants, records, holds and the ledger outlive it by LATER; see ends.
-- The flag ends when units come back without a write: at the next deadline of a hold, or at the end.
--
-- The stock's hash says how many fields and members its other keys have. If they have another number, a script changes nothing
-- and replies {-1, said, found}: a claimant whose record is missing could get a second unit (TestStock_AnyKeyLost_StopsTheSale).
-- If numbers contradict each other, it replies {-1, -1, 0}.
--
-- The hash of a stock with a ledger counts the entries: serial is the number of the last, moved how many were removed because a
-- database has them. So the stream has serial - moved entries. If it has another number, some were lost, or it was trimmed by hand, and
-- the reply is {-13, should be, found}; see append_ledger for what comes first.
--
-- Both are {-10, 0, 0} while Restore writes: 'restoring' is the server's ms until which it counts as going on, moved on by each of
-- its steps. One that was broken off is over then (TestRestore_UnderWay_OthersHearSo). From its second round on, which it begins
-- because something has changed while it read, it is the reply in any case ('alone'): otherwise returns that go on would have it read
-- forever (TestRestore_ReturnsGoOn_Ends).

-- begin reads the stock and checks it. It returns nil, 'absent', or the reply that says what is wrong.
local function begin()
  local m = redis.call('HMGET', s.stock, 'limit', 'sold', 'held', 'seq', 'recorded', 'requests', 'holds', 'per', 'start', 'end', 'gone',
    'epoch', 'state', 'ledger', 'remember')
  if not m[1] then
    local found = redis.call('EXISTS', s.stock) == 0 and rare().orphaned_records() or 0
    if found > 0 then return {-1, 0, found} end -- their claimants have units, and must not hear that they have none
    return 'absent'
  end
  if not read_integers(m, m[15] and 15 or 14) then return {-1, -1, 0} end
  s.limit, s.sold, s.held, s.seq, s.recorded, s.requests, s.waiting, s.per = m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]
  s.start, s.ending, s.gone, s.epoch, s.state, s.keeps = m[9], m[10], m[11], m[12], m[13], m[14]
  s.remember = m[15] -- none: what ended is kept as long as the stock
  if not s.now then s.now, s.micros = clock() end -- several stocks of one script have one time
  if expired(s.gone, s.now) then -- over, and only its keys not yet removed
    rare().remove()
    return 'absent'
  end
  s.claimants, s.fields, s.members, s.entries = redis.call('HLEN', s.users), redis.call('HLEN', s.records), s.waiting, 0
  local off
  if s.claimants ~= s.recorded then
    off = {-1, s.recorded, s.claimants}
  elseif s.fields ~= s.requests then
    off = {-1, s.requests, s.fields}
  elseif s.waiting > 0 or s.held > 0 then
    s.members = redis.call('ZCARD', s.holds)
    if s.members ~= s.waiting then off = {-1, s.waiting, s.members} end
  end
  if not off and s.keeps == 1 then
    local l = redis.call('HMGET', s.stock, 'serial', 'moved')
    local known = read_integers(l, 2)
    off = ledger_mismatch(s.ledger, known and l[1], l[2])
    if known then s.serial, s.moved, s.entries = l[1], l[2], l[1] - l[2] end
  end
  s.stored = {sold = s.sold, held = s.held, seq = s.seq, recorded = s.recorded, requests = s.requests, waiting = s.waiting, serial = s.serial}
  local restoring, alone = false, false
  if off or s.state ~= 1 then -- a stock that is open is not restored
    local l = redis.call('HMGET', s.stock, 'restoring', 'alone')
    restoring, alone = l[1] and not expired(l[1], s.now), l[2]
  end
  if off then return restoring and {-10, 0, 0} or off end
  if s.sold < 0 or s.held < 0 or s.sold + s.held > s.limit or s.sold > s.seq or s.per < 1 then return {-1, -1, 0} end
  if alone and restoring then return {-10, 0, 0} end
end

-- end_write ends a script that wrote to the stock: the flag follows what is left now, and a key that the script has made gets its end. Every
-- other key has one. before is how many units were left before the script.
local function end_write(before)
  local left = s.limit - s.sold - s.held
  if left > 0 and before <= 0 or left <= 0 and before > 0 then rare().follow(before) end
  if s.claimants == 0 and s.recorded > 0 then rare().ends() end
  if s.fields == 0 and s.requests > 0 then outlive(s.records) end
  if s.members == 0 and s.waiting > 0 then outlive(s.holds) end
  if s.entries == 0 and s.serial > s.moved then outlive(s.ledger) end
end

-- overdue is whether there are holds whose time is over.
local function overdue() return s.waiting > 0 and redis.call('ZCOUNT', s.holds, '-inf', elapsed(s.now)) > 0 end

-- present begins a script that needs the stock. It returns nil, or the reply: absent if there is no stock, or what is wrong.
local function present(absent)
  local wrong = begin()
  if wrong == 'absent' then return absent end
  return wrong
end

-- ready begins a script that needs units. It ends holds whose time is over, so that their units are free even if no process
-- calls Reap. It returns nil, or the reply: absent if there is no stock, or what is wrong.
local function ready(absent)
  return present(absent) or reap(128)
end

-- refuse is the reply to a call that wants n units and gets none, or nil if it may get some. Its claimant may have so many more.
-- Before a refusal it ends all holds whose time is over, not only before a grant. 129 reservations have expired, and a script
-- ends 128 at a time. The claimant of the 129th asks again: its own reservation, which is over, would put it at its limit
-- (TestHolds_ManyAreOver_RefuseNoClaim).
local function refuse(n, may)
  local left, closed = s.limit - s.sold - s.held, refusal()
  if closed then return {0, s.epoch, left, closed, 0, 0} end
  if n > math.min(left, may) then
    local wrong = reap_more()
    if wrong then return wrong end
  end
  if left == 0 then
    if redis.call('EXISTS', s.flag) == 0 then mark() end
    return {0, s.epoch, 0, 3, 0, 0}
  end
end

-- replay is the reply to a call whose record 'a:' and id is there already; nil if it is not.
local function replay(id, sure)
  local record = s.requests > 0 and redis.call('HGET', s.records, 'a:' .. id)
  if not record then return end
  local ordinal, n = record:match('^(%d+);(%d+)')
  if not n then return {-1, -1, 0} end
  if n == '0' then return {0, s.epoch, s.limit - s.sold - s.held, 9, 0, 0} end
  touch(sure)
  return {0, s.epoch, s.limit - s.sold - s.held, 1, tonumber(ordinal), tonumber(n)}
end

-- forbid writes a record by which the call with that id, which has not run, never will. call is the call that gives it up
-- (TestClaimAny_GivenUp_NeverRuns).
local function forbid(id, call)
  local before = s.limit - s.sold - s.held
  s.requests = s.requests + 1
  count()
  redis.call('HSET', s.records, 'a:' .. id, '0;0;' .. call)
  end_write(before)
  endless(s.records)
end

-- sell sells up to n units without a claimant, with the record 'a:' and id, and returns the reply. Everything is decided before
-- the first write.
local function sell(id, n)
  local wrong = refuse(n, n)
  if wrong then return wrong end
  local before = s.limit - s.sold - s.held
  n = math.min(n, before)
  if s.seq > 9007199254740991 - n then return {-2, 0, 0} end

  local ordinal = s.seq + 1
  s.sold, s.seq, s.requests = s.sold + n, s.seq + n, s.requests + 1
  log_entry('grant', digits(ordinal), digits(n), '', id)
  count()
  redis.call('HSET', s.records, 'a:' .. id, digits(ordinal) .. ';' .. digits(n))
  end_write(before)
  endless(s.records)
  return {0, s.epoch, s.limit - s.sold - s.held, 1, ordinal, n}
end
