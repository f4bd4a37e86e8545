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
-- database has them. So the stream has serial - moved entries. If it has another number, some were lost, or somebody trimmed it, and
-- the reply is {-13, should be, found}; see tell for what comes first.
--
-- Both are {-10, 0, 0} while Restore writes: 'restoring' is the server's ms until which it counts as going on, moved on by each of
-- its steps. One that was broken off is over then (TestWhileAStockIsRestoredOthersHearSo). From its second round on, which it begins
-- because something has changed while it read, it is the reply in any case ('alone'): otherwise returns that go on would have it read
-- for ever (TestRestoreEndsWhileReturnsGoOn).
local stock, users, records, holds, flag, ledger, endings = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local limit, sold, held, seq, recorded, requests, waiting, per, start, ending, gone, epoch, state, keeps, remember, now, micros
local serial, moved, lines = 0, 0, {}

-- ends gives all keys but the flag an end: the hash the end of the retention, the others LATER; see ends.lua.
local function ends() expire(gone - now, 5) end

-- strays is how many records there are of a stock whose hash was lost. Its claimants have units, so nothing may be opened over
-- it. The hash is also missing once the retention is over, and then the records may be removed. What they have left to live
-- tells the two apart: an hour or less after the retention, more after a loss while the stock sells
-- (TestWhatAStockLeavesIsRemovedByWhoeverCallsNextAndWhatWasLostStays).
local function strays()
  return stray(redis.call('HLEN', users) + redis.call('HLEN', records) + redis.call('ZCARD', holds) + redis.call('EXISTS', ledger), 5)
end

-- differs is the reply when the records are not what the hash says.
local function differs(code, said, found, restoring)
  if restoring and not expired(restoring, now) then return {-10, 0, 0} end
  return {code, said, found}
end

-- begin reads the stock and checks it. It returns nil, 'absent', or the reply that says what is wrong.
local function begin()
  local m = redis.call('HMGET', stock, 'limit', 'sold', 'held', 'seq', 'recorded', 'requests', 'holds', 'per', 'start', 'end', 'gone',
    'epoch', 'state', 'ledger', 'remember', 'restoring', 'alone')
  if not m[1] then
    if redis.call('EXISTS', stock) == 0 then strays() end
    return 'absent'
  end
  for i = 1, 14 do
    m[i] = exact(m[i])
    if not m[i] then return {-1, -1, 0} end
  end
  limit, sold, held, seq, recorded, requests, waiting, per = m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]
  start, ending, gone, epoch, state, keeps = m[9], m[10], m[11], m[12], m[13], m[14]
  remember = exact(m[15]) -- none: what ended is kept as long as the stock
  if not now then now, micros = clock() end -- several stocks of one script have one time
  if expired(gone, now) then -- over, and only its keys not yet removed
    remove()
    return 'absent'
  end
  local found = redis.call('HLEN', users)
  if found ~= recorded then return differs(-1, recorded, found, m[16]) end
  found = redis.call('HLEN', records)
  if found ~= requests then return differs(-1, requests, found, m[16]) end
  if waiting > 0 or held > 0 then
    found = redis.call('ZCARD', holds)
    if found ~= waiting then return differs(-1, waiting, found, m[16]) end
  end
  if keeps == 1 then
    local l = redis.call('HMGET', stock, 'serial', 'moved')
    serial, moved = exact(l[1]), exact(l[2])
    local off = unlike(ledger, serial, moved)
    if off then return differs(off[1], off[2], off[3], m[16]) end
  end
  if sold < 0 or held < 0 or sold + held > limit or sold > seq or per < 1 then return {-1, -1, 0} end
  if m[17] and not expired(m[16], now) then return {-10, 0, 0} end
end

-- refusal is the outcome of a claimant that has nothing yet, or nil while the stock sells.
local function refusal()
  if state == 3 or state == 7 then return 8 end
  if state ~= 1 and state ~= 6 or begun(ending, now) then return 6 end
  if state == 6 then return 12 end
  if not begun(start, now) then return 5 end
end

-- doubted is whether the stock is suspended, open, closed or paused: its ordinals may have been given out by what was lost.
local function doubted() return state == 3 or state == 5 or state == 7 end

-- enter notes a line of the ledger, to be written by tell. Its kind: 'held', 'expired', 'cancelled' and 'extended' are n units of a
-- reservation, without an ordinal; 'grant', and 'late' after the reservation was over: they are sold; 'return': they came back.
local function enter(kind, ordinal, n, claimant, request)
  if keeps == 1 then lines[#lines + 1] = {'k', kind, 'e', digits(epoch), 'o', digits(ordinal), 'n', digits(n), 'c', claimant, 'r', request, 'at', digits(micros)} end
end

-- tell writes the lines that were noted, before all else that a script writes: it is called before the first write, and by count.
-- The hash counts them with the first numbers that are written after them. So if the server refuses the lines (the user may not
-- XADD), nothing has happened, and the call can be made again. If a run is broken off after the lines, the stream has more entries
-- than the hash says, and every next call, the second run too, refuses: the entries tell of something that has not happened, or not
-- all of it. If the hash came first: the server is stopped between the two, a unit is sold of which no entry tells, and the second
-- run finds its record and answers as if all were well (TestARunThatIsBrokenOffNeverHidesALineOfTheLedger).
local function tell()
  serial, lines = append(ledger, serial, lines), {}
end

-- count writes the numbers: before the records of new sales, and after those of returns. A run that is broken off between the
-- two then sells too little, and the next call says so. It never sells too much.
local function count()
  local last = {}
  if keeps == 1 then
    tell()
    last = {'serial', digits(serial)}
  end
  redis.call('HSET', stock, 'sold', digits(sold), 'held', digits(held), 'seq', digits(seq), 'recorded', digits(recorded),
    'requests', digits(requests), 'holds', digits(waiting), unpack(last))
end

-- till is how many ms nothing is left if no script writes: until the next deadline of a hold, or the end.
local function till()
  local ms = ending - now
  if waiting > 0 then ms = math.min(ms, tonumber(redis.call('ZRANGE', holds, 0, 0, 'WITHSCORES')[2]) - now) end
  return ms
end

-- mark sets the flag, until somebody must look again.
local function mark()
  local ms = till()
  if not refusal() and ms > 0 then redis.call('SET', flag, digits(epoch), 'PX', digits(ms)) end
end

-- follow has the flag follow what is left now. before is how many units were left before the script.
local function follow(before)
  local left = limit - sold - held
  if left > 0 and before <= 0 then
    redis.call('DEL', flag)
  elseif left <= 0 and before > 0 then
    mark()
  end
end

-- endless gives all keys their ends if one has none. If the records ended before the stock, that would look like their loss
-- (TestEveryKeyOfAStockHasAnEndAfterEveryVerb). wrote is the claimants or the records: what the script wrote to.
local function endless(wrote)
  if redis.call('PTTL', wrote) == -1 or redis.call('PTTL', stock) == -1 or waiting > 0 and redis.call('PTTL', holds) == -1
      or keeps == 1 and redis.call('PTTL', ledger) == -1 then
    ends()
  end
end

-- free comes before all else that a script writes to give units back. A server whose memory is full takes this write, and then those
-- that follow it in the script: it refuses only a script's first write, and only if that may take memory. Otherwise one hold that is over
-- would keep a winner from the answer that it has (TestAFullServerAnswersWinnersAndTakesUnitsBack). The flag may always be missing.
local function free() redis.call('DEL', flag) end

-- settle ends a script that wrote to the stock and to wrote (users, or records by default).
local function settle(before, wrote)
  follow(before)
  endless(wrote or records)
end

-- own writes something that changes nothing, if the caller waits for replicas (sure is '1') and the answer is already recorded.
-- WAIT waits only for what its own connection has written; from Redis 7.2 on it returns at once if that is nothing. The first
-- copy of a claim grants a unit, and its connection breaks before a replica confirms. The second copy comes by a new connection
-- and only finds the record: without this write WAIT would confirm what no replica has. This write comes after the grant in the
-- server's history, so a replica that has it has the grant (TestEveryAnswerThatIsConfirmedComesWithAWrite,
-- TestARetryOverANewConnectionIsNotConfirmedByNobody).
local function own(sure)
  if sure == '1' then redis.call('HSET', stock, 'state', digits(state)) end
end

-- finish notes when the records of these 'state;id', which end now, may be forgotten. It comes before their records are written: an
-- entry whose record has not ended so does nothing. A reservation expires, is confirmed late, and is returned: the entry of its
-- first end must not have it forgotten sooner after its second one.
local function finish(which)
  if not remember or #which == 0 then return end
  local last, entries = digits(now + remember) .. ';', {}
  for i = 1, #which do entries[i] = last .. which[i] end
  if redis.call('RPUSH', endings, unpack(entries)) == #which then redis.call('PEXPIRE', endings, digits(gone - now + LATER)) end
end

-- forget removes at most so many records that were kept long enough. It is complete in itself. While Restore looks at the records
-- nothing is forgotten.
local function forget(most)
  local head = remember and not doubted() and redis.call('LINDEX', endings, 0)
  if not head or not expired(head:match('^%d+') or 0, now) then return end
  local due = redis.call('LRANGE', endings, 0, most - 1)
  local fields, states = {}, {}
  for i = 1, #due do
    local last, ended, id = due[i]:match('^(%d+);(%u);(.*)$')
    if not last or not expired(last, now) then break end
    fields[i], states[i] = 'r:' .. id, ended
  end
  if #fields == 0 then return end
  local is, over = redis.call('HMGET', records, unpack(fields)), {}
  for i = 1, #fields do
    if is[i] and is[i]:sub(1, 1) == states[i] then over[#over + 1] = fields[i] end
  end
  for _ = 1, #fields do redis.call('LPOP', endings) end
  if #over == 0 then return end
  requests = requests - redis.call('HDEL', records, unpack(over))
  count()
end

-- parse reads the record of a request or reservation; nil if it is none.
local function parse(record)
  local state, ordinal, n, asked, call, by, deadline, claimant = record:match('^(%u);(%d+);(%d+);(%d+);([^;]*);([^;]*);(%d+);(.*)$')
  if not state then return nil end
  return {state = state, ordinal = tonumber(ordinal), n = tonumber(n), asked = tonumber(asked), call = call, by = by, deadline = tonumber(deadline), claimant = claimant}
end

-- written is the record of a request or reservation.
local function written(r)
  return r.state .. ';' .. digits(r.ordinal) .. ';' .. digits(r.n) .. ';' .. digits(r.asked) .. ';' .. r.call .. ';' .. r.by .. ';' .. digits(r.deadline) ..
    ';' .. r.claimant
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
  if waiting == 0 then return end
  local due = redis.call('ZRANGEBYSCORE', holds, '-inf', elapsed(now), 'LIMIT', 0, most)
  if #due == 0 then return end
  local ended, lapsed, n = {}, {}, 0
  for i, id in ipairs(due) do
    local record = redis.call('HGET', records, 'r:' .. id)
    local r = record and parse(record)
    if not r or r.state ~= 'H' then return {-1, -1, 0} end
    r.state, ended[i], lapsed[i], n = 'E', r, 'E;' .. id, n + r.n
  end
  if n > held then return {-1, -1, 0} end
  for i, id in ipairs(due) do enter('expired', 0, ended[i].n, ended[i].claimant, id) end
  free()
  tell()
  finish(lapsed)
  for i, id in ipairs(due) do
    redis.call('ZREM', holds, id)
    redis.call('HSET', records, 'r:' .. id, written(ended[i]))
    if redis.call('HINCRBY', records, 'u:' .. ended[i].claimant, digits(-ended[i].n)) == 0 then
      requests = requests - redis.call('HDEL', records, 'u:' .. ended[i].claimant)
    end
  end
  local before = limit - sold - held
  held, waiting = held - n, waiting - #due
  count()
  settle(before, records)
end

-- more is the reply in place of "sold out" and "the user's limit" while there are still holds whose time is over, because they
-- were too many for one reap. It ends some of them, and the caller calls again. It is nil if there are none, or the reply that
-- says what is wrong.
local function more()
  if waiting == 0 or #redis.call('ZRANGEBYSCORE', holds, '-inf', elapsed(now), 'LIMIT', 0, 1) == 0 then return end
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
  local left, closed = limit - sold - held, refusal()
  if closed then return {0, epoch, left, closed, 0, 0} end
  if n > math.min(left, may) then
    local wrong = more()
    if wrong then return wrong end
  end
  if left == 0 then
    if redis.call('EXISTS', flag) == 0 then mark() end
    return {0, epoch, 0, 3, 0, 0}
  end
end

-- replay is the reply to a call whose record 'a:' and id is there already; nil if it is not.
local function replay(id, sure)
  local record = requests > 0 and redis.call('HGET', records, 'a:' .. id)
  if not record then return end
  local ordinal, n = record:match('^(%d+);(%d+)')
  if not n then return {-1, -1, 0} end
  if n == '0' then return {0, epoch, limit - sold - held, 9, 0, 0} end
  own(sure)
  return {0, epoch, limit - sold - held, 1, tonumber(ordinal), tonumber(n)}
end

-- forbid writes a record by which the call with that id, which has not run, never will. call is the call that gives it up
-- (TestAnAnonymousCallGivenUpNeverRuns).
local function forbid(id, call)
  local before = limit - sold - held
  requests = requests + 1
  count()
  redis.call('HSET', records, 'a:' .. id, '0;0;' .. call)
  settle(before, records)
end

-- sell sells up to n units without a claimant, with the record 'a:' and id, and returns the reply. Everything is decided before
-- the first write.
local function sell(id, n)
  local wrong = refuse(n, n)
  if wrong then return wrong end
  local before = limit - sold - held
  n = math.min(n, before)
  if seq > 9007199254740991 - n then return {-2, 0, 0} end

  local ordinal = seq + 1
  sold, seq, requests = sold + n, seq + n, requests + 1
  enter('grant', ordinal, n, '', id)
  count()
  redis.call('HSET', records, 'a:' .. id, digits(ordinal) .. ';' .. digits(n))
  settle(before, records)
  return {0, epoch, limit - sold - held, 1, ordinal, n}
end
