-- A stock: its keys, its numbers, and the acts that its scripts share.
-- uses: clock, ends, ledger, integer
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
-- and replies {-1, said, found}: a claimant whose record is missing could get a second unit (TestLosingAnyKeyStopsTheSale).
-- If numbers contradict each other, it replies {-1, -1, 0}.
--
-- The hash of a stock with a ledger counts the entries: serial is the number of the last, moved how many were removed because a
-- database has them. So the stream has serial - moved entries. If it has another number, some were lost, or it was trimmed by hand, and
-- the reply is {-13, should be, found}; see tell for what comes first.
--
-- Both are {-10, 0, 0} while Restore writes: 'restoring' is the server's ms until which it counts as going on, moved on by each of
-- its steps. One that was broken off is over then (TestWhileAStockIsRestoredOthersHearSo). From its second round on, which it begins
-- because something has changed while it read, it is the reply in any case ('alone'): otherwise returns that go on would have it read
-- for ever (TestRestoreEndsWhileReturnsGoOn).
-- s is the state of the stock: its keys, then what begin reads of its hash and what the script makes of that. stored is what of it the
-- hash has, by what count knows it; lines are the entries of the ledger that tell is to write.
local s = {stock = KEYS[1], users = KEYS[2], records = KEYS[3], holds = KEYS[4], flag = KEYS[5], ledger = KEYS[6], endings = KEYS[7],
  limit = false, sold = false, held = false, seq = false, recorded = false, requests = false, waiting = false, per = false, start = false,
  ending = false, gone = false, epoch = false, state = false, keeps = false, remember = false, now = false, micros = false,
  serial = 0, moved = 0, lines = {}, stored = false}

-- ends gives all keys but the flag an end: the hash the end of the retention, the others LATER; see ends.lua.
local function ends() expire(s.gone - s.now, 5) end

-- strays is how many records there are of a stock whose hash was lost. Its claimants have units, so nothing may be opened over
-- it. The hash is also missing once the retention is over, and then the records may be removed. What they have left to live
-- tells the two apart: an hour or less after the retention, more after a loss while the stock sells
-- (TestWhatAStockLeavesIsRemovedByWhoeverCallsNextAndWhatWasLostStays).
local function strays()
  return stray(redis.call('HLEN', s.users) + redis.call('HLEN', s.records) + redis.call('ZCARD', s.holds) + redis.call('EXISTS', s.ledger), 5)
end

-- begin reads the stock and checks it. It returns nil, 'absent', or the reply that says what is wrong.
local function begin()
  local m = redis.call('HMGET', s.stock, 'limit', 'sold', 'held', 'seq', 'recorded', 'requests', 'holds', 'per', 'start', 'end', 'gone',
    'epoch', 'state', 'ledger', 'remember', 'restoring', 'alone')
  if not m[1] then
    if redis.call('EXISTS', s.stock) == 0 then strays() end
    return 'absent'
  end
  for i = 1, 14 do
    m[i] = exact(m[i])
    if not m[i] then return {-1, -1, 0} end
  end
  s.limit, s.sold, s.held, s.seq, s.recorded, s.requests, s.waiting, s.per = m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]
  s.start, s.ending, s.gone, s.epoch, s.state, s.keeps = m[9], m[10], m[11], m[12], m[13], m[14]
  s.remember = exact(m[15]) -- none: what ended is kept as long as the stock
  if not s.now then s.now, s.micros = clock() end -- several stocks of one script have one time
  if expired(s.gone, s.now) then -- over, and only its keys not yet removed
    remove()
    return 'absent'
  end
  local claimants, found, off = redis.call('HLEN', s.users), redis.call('HLEN', s.records), nil
  if claimants ~= s.recorded then
    off = {-1, s.recorded, claimants}
  elseif found ~= s.requests then
    off = {-1, s.requests, found}
  end
  if not off and (s.waiting > 0 or s.held > 0) then
    found = redis.call('ZCARD', s.holds)
    off = found ~= s.waiting and {-1, s.waiting, found}
  end
  if not off and s.keeps == 1 then
    local l = redis.call('HMGET', s.stock, 'serial', 'moved')
    s.serial, s.moved = exact(l[1]), exact(l[2])
    off = unlike(s.ledger, s.serial, s.moved)
  end
  s.stored = {sold = s.sold, held = s.held, seq = s.seq, recorded = s.recorded, requests = s.requests, waiting = s.waiting, serial = s.serial}
  local restoring = m[16] and not expired(m[16], s.now)
  if off then return restoring and {-10, 0, 0} or off end
  if s.sold < 0 or s.held < 0 or s.sold + s.held > s.limit or s.sold > s.seq or s.per < 1 then return {-1, -1, 0} end
  if m[17] and restoring then return {-10, 0, 0} end
end

-- refusal is the outcome of a claimant that has nothing yet, or nil while the stock sells.
local function refusal()
  if s.state == 3 or s.state == 7 then return 8 end
  if s.state ~= 1 and s.state ~= 6 or begun(s.ending, s.now) then return 6 end
  if s.state == 6 then return 12 end
  if not begun(s.start, s.now) then return 5 end
end

-- doubted is whether the stock is suspended, open, closed or paused: its ordinals may have been given out by what was lost.
local function doubted() return s.state == 3 or s.state == 5 or s.state == 7 end

-- enter notes a line of the ledger, to be written by tell. Its kind: 'held', 'expired', 'cancelled' and 'extended' are n units of a
-- reservation, without an ordinal ('0'); 'grant', and 'late' after the reservation was over: they are sold; 'return': they came back.
local function enter(kind, ordinal, n, claimant, request)
  if s.keeps == 1 then s.lines[#s.lines + 1] = {'k', kind, 'e', digits(s.epoch), 'o', ordinal, 'n', n, 'c', claimant, 'r', request, 'at', digits(s.micros)} end
end

-- tell writes the lines that were noted, before all else that a script writes: it is called before the first write, and by count.
-- The hash counts them with the first numbers that are written after them. So if the server refuses the lines (the user may not
-- XADD), nothing has happened, and the call can be made again. If a run is broken off after the lines, the stream has more entries
-- than the hash says, and every next call, the second run too, refuses: the entries tell of something that has not happened, or not
-- all of it. If the hash came first: the server is stopped between the two, a unit is sold of which no entry tells, and the second
-- run finds its record and answers as if all were well (TestARunThatIsBrokenOffNeverHidesALineOfTheLedger).
local function tell()
  if #s.lines > 0 then s.serial, s.lines = append(s.ledger, s.serial, s.lines), {} end
end

-- count writes those numbers that the hash does not have yet: before the records of new sales, and after those of returns. A run that
-- is broken off between the two then sells too little, and the next call says so. It never sells too much.
local function count()
  tell()
  local stored, new, n = s.stored, {}, 0
  for name, is in pairs(stored) do
    if s[name] ~= is then
      stored[name], new[n + 1], new[n + 2], n = s[name], name == 'waiting' and 'holds' or name, digits(s[name]), n + 2
    end
  end
  if n > 0 then redis.call('HSET', s.stock, unpack(new)) end
end

-- mark sets the flag, until a call must look again, if none writes: until the next deadline of a hold, or the end.
local function mark()
  local ms = s.ending - s.now
  if s.waiting > 0 then ms = math.min(ms, tonumber(redis.call('ZRANGE', s.holds, 0, 0, 'WITHSCORES')[2]) - s.now) end
  if not refusal() and ms > 0 then redis.call('SET', s.flag, digits(s.epoch), 'PX', digits(ms)) end
end

-- follow has the flag follow what is left now. before is how many units were left before the script.
local function follow(before)
  local left = s.limit - s.sold - s.held
  if left > 0 and before <= 0 then
    redis.call('DEL', s.flag)
  elseif left <= 0 and before > 0 then
    mark()
  end
end

-- endless gives all keys their ends if one has none. If the records ended before the stock, that would look like their loss
-- (TestEveryKeyOfAStockHasAnEndAfterEveryVerb). wrote is the claimants or the records: what the script wrote to.
local function endless(wrote)
  if redis.call('PTTL', wrote) == -1 or redis.call('PTTL', s.stock) == -1 or s.waiting > 0 and redis.call('PTTL', s.holds) == -1
      or s.keeps == 1 and redis.call('PTTL', s.ledger) == -1 then
    ends()
  end
end

-- free comes before all else that a script writes to give units back. A server whose memory is full takes this write, and then those
-- that follow it in the script: it refuses only a script's first write, and only if that may take memory. Otherwise one hold that is over
-- would keep a winner from the answer that it has (TestAFullServerAnswersWinnersAndTakesUnitsBack). The flag may always be missing.
local function free() redis.call('DEL', s.flag) end

-- settle ends a script that wrote to the stock and to wrote (users, or records by default).
local function settle(before, wrote)
  follow(before)
  endless(wrote or s.records)
end

-- own writes something that changes nothing, if the caller waits for replicas (sure is '1') and the answer is already recorded.
-- WAIT waits only for what its own connection has written; from Redis 7.2 on it returns at once if that is nothing. The first
-- copy of a claim grants a unit, and its connection breaks before a replica confirms. The second copy comes by a new connection
-- and only finds the record: without this write WAIT would confirm what no replica has. This write comes after the grant in the
-- server's history, so a replica that has it has the grant (TestEveryAnswerThatIsConfirmedComesWithAWrite,
-- TestARetryOverANewConnectionIsNotConfirmedByNobody).
local function own(sure)
  if sure == '1' then redis.call('HSET', s.stock, 'state', digits(s.state)) end
end

-- outlive gives a key that the script has made the end that all have but the stock and the flag.
local function outlive(key) redis.call('PEXPIRE', key, digits(s.gone - s.now + LATER)) end

-- finish notes when the records of these 'state;id', which end now, may be forgotten. It comes before their records are written: an
-- entry whose record has not ended so does nothing. A reservation expires, is confirmed late, and is returned: the entry of its
-- first end must not have it forgotten sooner after its second one.
local function finish(which)
  if not s.remember or #which == 0 then return end
  local last, entries = digits(s.now + s.remember) .. ';', {}
  for i = 1, #which do entries[i] = last .. which[i] end
  if redis.call('RPUSH', s.endings, unpack(entries)) == #which then outlive(s.endings) end
end

-- forget removes at most so many records that were kept long enough. It is complete in itself. While Restore looks at the records
-- nothing is forgotten.
local function forget(most)
  local head = s.remember and not doubted() and redis.call('LINDEX', s.endings, 0)
  if not head or not expired(head:match('^%d+') or 0, s.now) then return end
  local due = redis.call('LRANGE', s.endings, 0, most - 1)
  local fields, states = {}, {}
  for i = 1, #due do
    local last, ended, id = due[i]:match('^(%d+);(%u);(.*)$')
    if not last or not expired(last, s.now) then break end
    fields[i], states[i] = 'r:' .. id, ended
  end
  if #fields == 0 then return end
  local is, over = redis.call('HMGET', s.records, unpack(fields)), {}
  for i = 1, #fields do
    if is[i] and is[i]:sub(1, 1) == states[i] then over[#over + 1] = fields[i] end
  end
  for _ = 1, #fields do redis.call('LPOP', s.endings) end
  if #over == 0 then return end
  s.requests = s.requests - redis.call('HDEL', s.records, unpack(over))
  count()
end

-- parse reads the record of a request or reservation; nil if it is none. Its numbers stay text: to write a number costs more than all
-- else that is done with it.
local function parse(record)
  local is, ordinal, n, asked, call, by, deadline, claimant = string.match(record, '^(%u);(%d+);(%d+);(%d+);([^;]*);([^;]*);(%d+);(.*)$')
  if not is then return nil end
  return {state = is, ordinal = ordinal, n = n, asked = asked, call = call, by = by, deadline = deadline, claimant = claimant}
end

-- written is the record of a request or reservation.
local function written(r)
  return r.state .. ';' .. r.ordinal .. ';' .. r.n .. ';' .. r.asked .. ';' .. r.call .. ';' .. r.by .. ';' .. r.deadline .. ';' .. r.claimant
end

-- present begins a script that needs the stock. It returns nil, or the reply: absent if there is no stock, or what is wrong.
local function present(absent)
  local wrong = begin()
  if wrong == 'absent' then return absent end
  return wrong
end

-- reap ends holds whose time is over, at most so many. It is complete in itself, whatever the script does next. It returns nil,
-- or the reply that says what is wrong.
local function reap(most)
  if s.waiting == 0 then return end
  local due = redis.call('ZRANGEBYSCORE', s.holds, '-inf', elapsed(s.now), 'LIMIT', 0, most)
  if #due == 0 then return end
  local ended, lapsed, n = {}, {}, 0
  for i, id in ipairs(due) do
    local record = redis.call('HGET', s.records, 'r:' .. id)
    local r = record and parse(record)
    if not r or r.state ~= 'H' then return {-1, -1, 0} end
    r.state, ended[i], lapsed[i], n = 'E', r, 'E;' .. id, n + r.n
  end
  if n > s.held then return {-1, -1, 0} end
  for i, id in ipairs(due) do enter('expired', '0', ended[i].n, ended[i].claimant, id) end
  free()
  tell()
  finish(lapsed)
  for i, id in ipairs(due) do
    redis.call('ZREM', s.holds, id)
    redis.call('HSET', s.records, 'r:' .. id, written(ended[i]))
    if redis.call('HINCRBY', s.records, 'u:' .. ended[i].claimant, digits(0 - ended[i].n)) == 0 then
      s.requests = s.requests - redis.call('HDEL', s.records, 'u:' .. ended[i].claimant)
    end
  end
  local before = s.limit - s.sold - s.held
  s.held, s.waiting = s.held - n, s.waiting - #due
  count()
  settle(before, s.records)
end

-- more is the reply in place of "sold out" and "the user's limit" while there are still holds whose time is over, because they
-- were too many for one reap. It ends some of them, as if this call had decided nothing yet, and the caller calls again. It is nil if there
-- are none, or the reply that says what is wrong.
local function more()
  if s.stored.waiting == 0 or #redis.call('ZRANGEBYSCORE', s.holds, '-inf', elapsed(s.now), 'LIMIT', 0, 1) == 0 then return end
  for name, n in pairs(s.stored) do s[name] = n end
  s.lines = {}
  return reap(1024) or {-12, 0, 0}
end

-- ready begins a script that needs units. It ends holds whose time is over, so that their units are free even if no process
-- calls Reap. It returns nil, or the reply: absent if there is no stock, or what is wrong.
local function ready(absent)
  return present(absent) or reap(128)
end

-- refuse is the reply to a call that wants n units and gets none, or nil if it may get some. Its claimant may have so many more.
-- Before a refusal it ends all holds whose time is over, not only before a grant. 129 reservations have expired, and a script
-- ends 128 at a time. The claimant of the 129th asks again: its own reservation, which is over, would put it at its limit
-- (TestHoldsThatAreOverRefuseNobodyHoweverMany).
local function refuse(n, may)
  local left, closed = s.limit - s.sold - s.held, refusal()
  if closed then return {0, s.epoch, left, closed, 0, 0} end
  if n > math.min(left, may) then
    local wrong = more()
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
  own(sure)
  return {0, s.epoch, s.limit - s.sold - s.held, 1, tonumber(ordinal), tonumber(n)}
end

-- forbid writes a record by which the call with that id, which has not run, never will. call is the call that gives it up
-- (TestAnAnonymousCallGivenUpNeverRuns).
local function forbid(id, call)
  local before = s.limit - s.sold - s.held
  s.requests = s.requests + 1
  count()
  redis.call('HSET', s.records, 'a:' .. id, '0;0;' .. call)
  settle(before, s.records)
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
  enter('grant', digits(ordinal), digits(n), '', id)
  count()
  redis.call('HSET', s.records, 'a:' .. id, digits(ordinal) .. ';' .. digits(n))
  settle(before, s.records)
  return {0, s.epoch, s.limit - s.sold - s.held, 1, ordinal, n}
end
