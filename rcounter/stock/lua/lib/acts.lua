-- Acts on requests and reservations by their ids: one act, or all acts of a process that share a call. Each is answered for itself.
-- uses: clock, rare, state, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is granted: see touch in rare.lua
-- ARGV[3]  the server's ms until which this call may act, 0 to ask for the server's time
-- ARGV[4…] the acts, 1 to 128, each with an id that no other act of the call has. After the id each has last, the server's
--          ms until which it may run, since its caller has given up then; 0 for that of the call:
--          'R', id, last, claimant, n, ms    reserve: hold n units, all or none, for that long
--          'V', id, last, claimant, n, ms    the same, and fewer will do
--          'O', id, last, claimant, n        claim once: sell n units, all or none
--          'U', id, last, claimant, n        the same, and fewer will do
--          'C', id, last, keep               confirm: sell what is held, or if its time is over, up to as many of what is left;
--                                            keep is how many of them at most, 0 for all, and what is held beyond that is given back
--          'E', id, last, ms                 extend: hold what is held for that long from now, if that is longer
--          'X', id, last                     cancel: give back what is held, or forbid the id
--          'B', id, last, keep               return: give back what was sold, but the first keep units
--
-- Replies  { 0, epoch, remaining, ms, a, b, c, d, e, a, b, c, d, e …}   ms is the server's time, and five numbers are for each act:
--            outcome, ordinal, n, asked, ms left   all but 'X' and 'B'. Outcomes: 1 granted, 2 replayed, 3 sold out, 4 not open, 5
--                                             not started, 6 ended, 7 the claimant has as many as it may have, 8 suspended, 9 it
--                                             was sold and returned, 10 its time is over, 11 it was cancelled, 12 paused. Of 'C',
--                                             asked is how many were held, and 1, 2, 9, 10 and 11 are its answer from then on
--            0, n, 0, 0, 0                    'X', 'B': n units came back, by this call
--            -11, 0, 0, 0, 0                  LATE: the act came too late, and was not done
--            -1, 0, 0, 0, 0                   the act's record is none
--            -2, 0, 0, 0, 0                   the ordinals are used up
--            -3, 0, 0, 0, 0                   the id is that of something else
--            -6, 0, 0, 0, 0                   'C', 'E', 'X', 'B': no stock
--            -7, 0, 0, 0, 0                   'E': no such reservation
--            -9, 0, 0, 0, 0                   'C', 'X': too many unknown ids are forbidden, see FORBIDDEN
--            -10, 0, 0, 0, 0                  'X', 'B': the stock is suspended, and the id has no record that may not be lost
--          {-1, said, found}   records are missing, or numbers that cannot be: nothing done
--          {-11, ms, 0}        the server's time was asked for, or the call is too late: nothing done
--          {-12, 0, 0}         call again, see reap_more in rare.lua: nothing done
--
-- The record comes first, then the window, then what is left, as in claim.lua.
--
-- Safe to run twice: every record names the call that made it and the call that ended it, so the second run finds the work of the
-- first and answers as that did. What was refused is not recorded, and the second run may grant it: a refused act whose reply was
-- lost is still wanted. No id is twice in a call. Otherwise, with a reservation and its cancellation in one call, the second run
-- would find the reservation cancelled and tell so the caller that got it in the first.
--
-- Safe however late: a copy of a call that arrives after the time that it names does nothing, and an act of it that comes after its
-- own time is not done, while the others are. An act whose time is over in a second run was done by the first or is not done at all;
-- it is answered LATE then, to a caller that has given up. So a copy that the network kept
-- finds the records of its ids, however soon those are forgotten after that time.
--
-- The numbers are written in two steps if units go and come in one call: first with what goes, before the records, then without
-- what comes, after them. A run that is broken off between any two writes then sells too little, and never too much
-- (TestScripts_BrokenOff_SellTooLittleAtWorst).
-- todo is what the call is to write, and what look has read: the records of the acts, how many units their claimants have by requests and
-- reservations, and which of them have one by a claim.
local todo = {found = {}, fields = {}, counts = {}, single = {}, totals = {}, set = {}, hold = {}, unhold = {}, over = {}, unsold = 0, unheld = 0, forbidden = 0,
  goes = false, closed = false, ms = false, deadline = false}

-- put notes the record of act i, tally that a claimant's units by requests and reservations become n more, finished that a record
-- has ended. Nothing is written before all acts are decided. Numbers that come as decimals stay so: see parse. So do units that are a
-- claimant's first.
local function put(i, record)
  local set = todo.set
  local n = #set
  set[n + 1], set[n + 2] = todo.fields[i], record
end
local function tally(claimant, n)
  local totals = todo.totals
  local was = totals[claimant] or todo.counts[claimant]
  if not was and n + 0 < 0 then was = redis.call('HGET', s.records, 'u:' .. claimant) or '0' end
  if was then
    n = was + n
    if n < 0 then todo.wrong = {-1, -1, 0} end -- the record says more than the count
    totals[claimant] = digits(n)
  else
    s.requests, totals[claimant] = s.requests + 1, n
  end
end
local function finished(i, id, r)
  put(i, written(r))
  todo.over[#todo.over + 1] = r.state .. ';' .. id
end

-- fits is how many of n units a claimant may have now, or nil and the outcome of a refusal. part: fewer than n will do.
local function fits(claimant, n, part)
  if todo.closed then return nil, todo.closed end
  local left, may = s.limit - s.sold - s.held, s.per - (todo.totals[claimant] or todo.counts[claimant] or 0) - (todo.single[claimant] or 0)
  if n <= left and n <= may then return n end
  if not todo.looked then -- perhaps by holds that are over
    todo.looked = true
    todo.wrong = rare().reap_more()
    if todo.wrong then return nil, 0 end
  end
  local gets = part and math.min(n, left, may) or n
  if left == 0 or gets > left then
    todo.empty = todo.empty or left == 0
    return nil, 3
  end
  if may <= 0 or gets > may then return nil, 7 end
  return gets
end

-- What acts do. Each gets the act's number and id, its record if it has one, and what it asks for, and returns up to five numbers of an
-- answer, the others being 0. First what most acts do.

-- reserve and claim grant units under a new id; part: fewer than n will do.
local function reserve(i, id, part, claimant, n, ms)
  local asks = n + 0
  local gets, refused = fits(claimant, asks, part)
  if not gets then return refused end
  if todo.ms ~= ms then todo.ms, todo.deadline = ms, digits(s.now + ms) end -- to write a number takes as long as a command
  local units, deadline, k = gets < asks and digits(gets) or n, todo.deadline, #todo.hold
  s.held, s.waiting, s.requests, todo.goes = s.held + gets, s.waiting + 1, s.requests + 1, true
  tally(claimant, units)
  put(i, 'H;0;' .. units .. ';' .. n .. ';' .. ARGV[1] .. ';;' .. deadline .. ';' .. claimant)
  todo.hold[k + 1], todo.hold[k + 2] = deadline, id
  log_entry('held', '0', units, claimant, id)
  return 1, 0, gets, asks, ms + 0
end
local function claim(i, id, part, claimant, n)
  local asks = n + 0
  local gets, refused = fits(claimant, asks, part)
  if not gets then return refused end
  if s.seq > 9007199254740991 - gets then return -2 end
  local first, units = s.seq + 1, gets < asks and digits(gets) or n
  local ordinal = digits(first)
  s.sold, s.seq, s.requests, todo.goes = s.sold + gets, s.seq + gets, s.requests + 1, true
  tally(claimant, units)
  put(i, 'G;' .. ordinal .. ';' .. units .. ';' .. n .. ';' .. ARGV[1] .. ';;0;' .. claimant)
  log_entry('grant', ordinal, units, claimant, id)
  return 1, first, gets, asks
end

-- confirm sells the units that are held, or the first keep of them; the others come back. If the time of the reservation is over, it
-- takes again what is left of them: a new claim then, under the same id, with new ordinals. It needs a stock that sells.
--
-- What it answers is decided for good, because money has moved: if it sells nothing it writes so. Otherwise a bank calls twice, and a
-- unit comes back in between: the first call says that all is to be refunded, and the second one sells the unit. So an id of which
-- nothing is known is forbidden too (TestStocks_RandomCalls_AnswerAsTheModel). Only where the stock may sell the units later it decides nothing:
-- it is suspended or paused, or its start was put off.
--
-- The second run finds the record of the first. A copy that comes after another confirmation finds that one's.
local function confirm(i, id, q, keep)
  if is_suspended() then return 8 end
  local n, claimant, kind = q.n + 0, q.claimant, 'grant'
  local k = keep == '0' and n or math.min(n, keep + 0)
  if q.state == 'H' then
    if n > s.held then return -1 end
    if s.seq > 9007199254740991 - k then return -2 end
    s.held, s.waiting = s.held - n, s.waiting - 1
    todo.unhold[#todo.unhold + 1] = id
    if k < n then
      todo.unheld = todo.unheld + n - k
      tally(claimant, k - n)
      log_entry('cancelled', '0', digits(n - k), claimant, id)
    end
  else
    local closed = todo.closed
    if closed and closed ~= 6 then return closed end
    if todo.counts[claimant] == nil then
      todo.counts[claimant] = redis.call('HGET', s.records, 'u:' .. claimant)
      local unit = s.recorded > 0 and redis.call('HGET', s.users, claimant)
      if unit and unit:byte(1) ~= 48 then todo.single[claimant] = 1 end
    end
    k, kind = fits(claimant, k, true), 'late'
    if todo.wrong then return 0 end
    if not k then
      log_entry('nothing', '0', q.n, claimant, id)
      q.state, q.n, q.by = 'C', '0', ARGV[1] .. '*' .. q.n
      finished(i, id, q)
      return 10, 0, 0, n
    end
    if s.seq > 9007199254740991 - k then return -2 end
    tally(claimant, digits(k))
  end
  local first = s.seq + 1
  q.by = k < n and ARGV[1] .. '*' .. q.n or ARGV[1]
  q.state, q.ordinal, q.n = 'G', digits(first), k < n and digits(k) or q.n
  log_entry(kind, q.ordinal, q.n, claimant, id)
  s.sold, s.seq, todo.goes = s.sold + k, s.seq + k, true
  put(i, written(q))
  return 1, first, k, n
end

-- cancel gives back what is held.
local function cancel(i, id, r)
  local n = r.n + 0
  if n > s.held then return -1 end
  s.held, s.waiting, todo.unheld = s.held - n, s.waiting - 1, todo.unheld + n
  tally(r.claimant, 0 - n)
  r.state, r.by = 'C', ARGV[1]
  finished(i, id, r)
  todo.unhold[#todo.unhold + 1] = id
  log_entry('cancelled', '0', r.n, r.claimant, id)
  return 0, n
end

-- What other acts do, and what they are answered. All of it is made when a call has one of them.

-- had is the id of the call that changed the record last, and how many units the record had when they were held, if it has fewer now:
-- 'call*units', with what return_units appends.
local function had(r)
  local by, units = r.by:match('^([^*.]*)%*?(%d*)')
  return by, tonumber(units) or tonumber(r.by:match('%.(%d+)$') or r.n)
end

-- again answers a request that was answered before, and perhaps had its units returned since.
local function again(_, _, r)
  if r.state == 'R' and r.call ~= ARGV[1] then return 9 end
  return r.call == ARGV[1] and 1 or 2, r.ordinal + 0, r.n + 0, r.asked + 0, r.state == 'H' and r.deadline - s.now or 0
end

-- forbids makes what forbids an id of which nothing is known. expiring is for a hold whose time is over, one of more than 128: it must
-- end before its units are taken or given back. Both have the outcome that is answered.
--
-- The hash counts the ids that were forbidden and are not forgotten yet, because a caller that may name ids can have any number of them
-- forbidden. It is raised before their records are written, so a run that is broken off forbids fewer from then on, and never more.
local FORBIDDEN = 1000000
local function forbids(outcome)
  return function(i, id)
    if (tonumber(redis.call('HGET', s.stock, 'forbidden') or '') or 0) + todo.forbidden >= FORBIDDEN then return -9 end
    todo.forbidden = todo.forbidden + 1
    s.requests, todo.goes = s.requests + 1, true
    put(i, 'C;0;0;0;;' .. ARGV[1] .. ';0;')
    todo.over[#todo.over + 1] = 'C;' .. id
    log_entry('nothing', '0', '0', '', id)
    return outcome
  end
end
local function expiring(outcome)
  return function()
    todo.wrong = rare().reap_more()
    return outcome
  end
end

-- answered is the answer to an act on a reservation that is not held any more, by what became of it. One that had expired before it was
-- cancelled, or confirmed in vain, has expired.
local function answered(_, _, r)
  local by, units = had(r)
  if r.state == 'C' then return r.n + 0 == 0 and r.asked + 0 > 0 and 10 or 11, 0, 0, units end
  if r.deadline == '0' and r.asked ~= '0' then return -3 end
  if r.state == 'R' then return 9, 0, 0, units end
  if r.state ~= 'G' then return 10, 0, 0, units end
  return by == ARGV[1] and 1 or 2, r.ordinal + 0, r.n + 0, units
end

-- extend moves the deadline of a hold, and never to an earlier time. The record names the call that moved it: the second run moves it
-- no further. If the run is broken off between the record and the zset, the hold ends at its old deadline, as if this had not run.
local function extend(i, id, q, ms)
  local n, asked, deadline, k = q.n + 0, q.asked + 0, s.now + ms, #todo.hold
  if q.by == ARGV[1] or deadline <= q.deadline + 0 then
    return q.by == ARGV[1] and 1 or 2, 0, n, asked, q.deadline - s.now
  end
  if is_suspended() then return 8 end -- Restore writes the deadlines that it has read
  q.by, q.deadline = ARGV[1], digits(deadline)
  put(i, written(q))
  todo.hold[k + 1], todo.hold[k + 2] = q.deadline, id
  log_entry('extended', '0', q.n, q.claimant, id)
  return 1, 0, n, asked, ms + 0
end

-- void is the cancellation of what has expired: nothing comes back, and from now on nothing is confirmed either.
local function void(i, id, r)
  log_entry('nothing', '0', r.n, r.claimant, id)
  r.state, r.n, r.by = 'C', '0', ARGV[1] .. '*' .. r.n
  finished(i, id, r)
  return 0
end
local function cancelled(_, _, r) return 0, r.by == ARGV[1] and r.n + 0 or 0 end

-- return_units gives back what was sold but the first keep units. The number that is kept, and not the number that comes back, makes it
-- safe to repeat: a copy that comes after another return finds that it has so few already. A record of which units came back names
-- the call, how many came back by it, and how many units there were at first: 'call.back.first', and before that '*units', see had.
local function return_units(i, id, r, keeps)
  local keep, n, by, units = keeps + 0, r.n + 0, had(r)
  local back, first = r.by:match('%.(%d+)%.(%d+)$')
  if n <= keep then return 0, by == ARGV[1] and n == keep and back + 0 or 0 end
  back = n - keep
  if back > s.sold then return -1 end
  s.sold, todo.unsold = s.sold - back, todo.unsold + back
  tally(r.claimant, 0 - back)
  if keep > 0 then
    r.by, r.n = ARGV[1] .. '*' .. digits(units) .. '.' .. digits(back) .. '.' .. (first or r.n), digits(keep)
    put(i, written(r))
  else
    r.state, r.by = 'R', units > n and ARGV[1] .. '*' .. digits(units) or ARGV[1]
    finished(i, id, r)
  end
  log_entry('return', digits(r.ordinal + keep), digits(back), r.claimant, id)
  return 0, back
end
local function returned(_, _, r, keep) return 0, had(r) == ARGV[1] and keep == '0' and r.n + 0 or 0 end

-- does is what a verb does with a record, by the record's state: the outcome of its answer, or what decides it. The states are those of a
-- record, and N there is none, O it is held and its time is over, F the id was forbidden, V it was cancelled when it had expired, or
-- confirmed in vain. What most acts do is in attempt.
local function does(verb)
-- libraries
  if verb == 'R' or verb == 'V' then return {H = again, O = 10, E = 10, G = again, R = 9, C = 11, V = 10, F = 11} end
  if verb == 'O' or verb == 'U' then return {H = again, O = again, E = again, G = again, R = again, C = again, V = again, F = 11} end
  if verb == 'C' then
    return {N = forbids(11), O = expiring(10), E = confirm, G = answered, R = answered, C = answered, V = answered, F = answered}
  end
  if verb == 'E' then return {N = -7, H = extend, O = answered, E = answered, G = answered, R = answered, C = answered, V = answered, F = answered} end
  if verb == 'X' then return {N = forbids(0), O = expiring(0), E = void, G = 0, R = 0, C = cancelled, V = cancelled, F = cancelled} end
  return {N = 0, H = 0, O = 0, E = 0, G = return_units, R = returned, C = 0, V = 0, F = 0}
end

-- attempt does an act with the record that it finds.
local function attempt(verb, i, id, record, x, y, z)
  local r, is = nil, 'N'
  if record then
    r = parse(record)
    if not r then return -1 end
    is, todo.replays = r.state, true -- it may be answered by what an earlier call has decided
    if is == 'H' then
      if expired(r.deadline, s.now) then
        is = 'O'
      elseif verb == 'C' then
        return confirm(i, id, r, x)
      elseif verb == 'X' then
        return cancel(i, id, r)
      end
    elseif is == 'C' then
      is = r.asked == '0' and 'F' or r.n == '0' and 'V' or 'C'
    end
    local other = false -- the id is that of something else
    if is == 'F' then
      other = false -- of nothing
    elseif verb == 'R' or verb == 'V' then
      other = r.asked ~= '0' and (r.deadline == '0' or r.asked ~= y) or r.claimant ~= x
    elseif verb == 'O' or verb == 'U' then
      other = r.deadline ~= '0' or r.asked ~= y and r.asked ~= '0' or r.claimant ~= x
    elseif verb == 'X' then
      other = r.state ~= 'C' and r.deadline == '0' and r.asked ~= '0'
    end
    if other then return -3 end
  elseif verb == 'R' or verb == 'V' then
    return reserve(i, id, verb == 'V', x, y, z)
  elseif verb == 'O' or verb == 'U' then
    return claim(i, id, verb == 'U', x, y)
  elseif is_suspended() then -- the record may be lost, and nothing is decided: an order that is sold would be paid back
    return (verb == 'X' or verb == 'B') and -10 or 8
  end
  local answer = does(verb)[is] or -1
  if type(answer) == 'number' then return answer end
  return answer(i, id, r, x, y, z)
end

-- look reads what there is of the acts, which begin at these places in ARGV. It returns the places, or nil if an id is in two.
local function look()
  local places, whose, seen, at, n, many, fields = {}, {}, {}, 4, 0, 0, todo.fields
  while ARGV[at] do
    local verb, id, long = ARGV[at], ARGV[at + 1], 4
    if verb == 'R' or verb == 'V' then
      long = 6
    elseif verb == 'O' or verb == 'U' then
      long = 5
    elseif verb == 'X' then
      long = 3
    end
    if seen[id] then return end
    n, seen[id] = n + 1, true
    places[n], fields[n] = at, 'r:' .. id
    if long > 4 then many, whose[many + 1] = many + 1, ARGV[at + 3] end
    at = at + long
  end
  if not s.stored then return places end
  if s.requests > 0 then
    for i = 1, many do fields[n + i] = 'u:' .. whose[i] end
    local found, counts = redis.call('HMGET', s.records, unpack(fields)), todo.counts
    todo.found = found
    for i = 1, many do counts[whose[i]] = found[n + i] end
  end
  if s.recorded > 0 and many > 0 then
    local v = redis.call('HMGET', s.users, unpack(whose))
    for i = 1, many do
      if v[i] and v[i]:byte(1) ~= 48 then todo.single[whose[i]] = 1 end -- '0': returned
    end
  end
  return places
end

-- save writes what was decided.
local function save()
  local before, set, k, none, back = s.limit - s.stored.sold - s.stored.held, todo.set, #todo.set, {}, todo.unsold + todo.unheld > 0
  if back then free() end
  append_ledger()
  note_endings(todo.over)
  if todo.forbidden > 0 then redis.call('HINCRBY', s.stock, 'forbidden', todo.forbidden) end
  for claimant, n in pairs(todo.totals) do
    if n == '0' then
      none[#none + 1] = 'u:' .. claimant
    else
      set[k + 1], set[k + 2], k = 'u:' .. claimant, n, k + 2
    end
  end
  s.requests = s.requests - #none
  if todo.goes then -- see the header: first without what comes back
    s.sold, s.held = s.sold + todo.unsold, s.held + todo.unheld
    count()
    s.sold, s.held = s.sold - todo.unsold, s.held - todo.unheld
  end
  redis.call('HSET', s.records, unpack(set))
  if #none > 0 then redis.call('HDEL', s.records, unpack(none)) end
  if #todo.hold > 0 then redis.call('ZADD', s.holds, unpack(todo.hold)) end -- before ZREM: a zset that is emptied and filled again has no end
  if #todo.unhold > 0 then redis.call('ZREM', s.holds, unpack(todo.unhold)) end
  if not todo.goes or back then count() end

  -- What comes back and goes again within the call may be held for a shorter time than the flag stands.
  if before <= 0 and back and s.limit - s.sold - s.held <= 0 then rare().mark() end
  end_write(before)
end

-- decide does all of a call but its writes. It returns the reply, with 0 in front if conclude may follow.
local function decide()
-- libraries
  local wrong, absent = begin(), nil
  if wrong == 'absent' then
    if not s.now then s.now, s.micros = clock() end
    s.epoch, absent = 0, {R = 4, V = 4, O = 4, U = 4, C = -6, E = -6, X = -6, B = -6} -- what each verb answers where there is no stock
  elseif wrong then
    return wrong
  end
  local notafter = tonumber(ARGV[3])
  if notafter == 0 or expired(notafter, s.now) then return {-11, s.now, 0} end
  if not absent then
    wrong = overdue() and rare().reap(128)
    if wrong then return wrong end
    local head = s.remember and redis.call('LINDEX', s.endings, 0)
    if head and expired(head:match('^%d+') or 0, s.now) then rare().forget(256) end -- more than the acts of a call can end
    if s.waiting == 0 then redis.call('ZCARD', s.holds) end -- a key of another type fails here, before anything is written
    todo.closed = refusal()
  end
  local places = look()
  if not places then return redis.error_reply('ERR one id is in two acts of a call') end

  local out, k, found = {0, s.epoch, 0, s.now}, 4, todo.found
  for i = 1, #places do
    local at = places[i]
    local verb, a, b, c, d, e = ARGV[at], nil, nil, nil, nil, nil
    if late(ARGV[at + 2], s.now) then
      a = -11
    elseif absent then
      a = absent[verb]
    else
      a, b, c, d, e = attempt(verb, i, ARGV[at + 1], found[i], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
      if todo.wrong then return todo.wrong end
    end
    out[k + 1], out[k + 2], out[k + 3], out[k + 4], out[k + 5], k = a, b or 0, c or 0, d or 0, e or 0, k + 5
  end
  if not absent then out[3] = s.limit - s.sold - s.held end
  return out
end

-- conclude writes what was decided.
local function conclude()
  if #todo.set > 0 then
    save()
  elseif todo.replays and ARGV[2] == '1' then
    rare().touch(ARGV[2])
  elseif todo.empty and redis.call('EXISTS', s.flag) == 0 then
    rare().mark()
  end
end
