-- Acts on requests and reservations by their ids: one act, or all acts of a process that share a call. Each is answered for itself.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is granted: see own in stock.lua
-- ARGV[3]  the server's ms until which this call may act, 0 to ask for the server's time
-- ARGV[4…] the acts, 1 to 128, each with an id that no other act of the call has. After the id each has last, the server's
--          ms until which it may run, since its caller has given up then; 0 for that of the call:
--          'R', id, last, claimant, n, ms    reserve: hold n units, all or none, for so long
--          'V', id, last, claimant, n, ms    the same, and fewer will do
--          'O', id, last, claimant, n        claim once: sell n units, all or none
--          'U', id, last, claimant, n        the same, and fewer will do
--          'C', id, last, keep               confirm: sell what is held, or if its time is over, up to as many of what is left;
--                                            keep is how many of them at most, 0 for all, and what is held beyond that is given back
--          'E', id, last, ms                 extend: hold what is held for so long from now, if that is longer
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
--            -6, 0, 0, 0, 0                   'E': no such reservation. 'C', 'E': no stock
--          {-1, said, found}   records are missing, or numbers that cannot be: nothing done
--          {-11, ms, 0}        the server's time was asked for, or the call is too late: nothing done
--          {-12, 0, 0}         call again, see more in stock.lua: nothing done
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
-- (TestARunOfSeveralActsThatIsBrokenOffSellsNothingTwice).
local call, found, fields, counts, single, totals, set, hold, unhold, over = ARGV[1], {}, {}, {}, {}, {}, {}, {}, {}, {}
local unsold, unheld, was, wrong, goes, replays, empty, looked = 0, 0

-- put notes the record of act i, tally that a claimant's units by requests and reservations become n more. Nothing is written before
-- all acts are decided. Numbers that come as decimals stay so: to write a number costs more than all else that is done with it.
local function put(i, record)
  local n = #set
  set[n + 1], set[n + 2] = fields[i], record
end
local function tally(claimant, n)
  local is = totals[claimant] or counts[claimant]
  if not is and n < 0 then is = redis.call('HGET', records, 'u:' .. claimant) end
  if not is then requests = requests + 1 end
  totals[claimant] = (is or 0) + n
  if totals[claimant] < 0 then wrong = {-1, -1, 0} end -- the record says more than the count
end

-- aside ends holds that are over, as if this call had not begun; then the whole call is made again. Else it does nothing.
local function aside()
  local s, h, q, r, w, l = sold, held, seq, requests, waiting, lines
  sold, held, seq, requests, waiting = unpack(was)
  lines = {}
  wrong = more()
  sold, held, seq, requests, waiting, lines = s, h, q, r, w, l
end

-- fits is how many of n units a claimant may have now, or nil and the outcome of a refusal. part: fewer than n will do.
local function fits(claimant, n, part)
  local left, may = limit - sold - held, per - (totals[claimant] or counts[claimant] or 0) - (single[claimant] or 0)
  local closed = refusal()
  if closed then return nil, closed end
  if n <= left and n <= may then return n end
  if not looked then -- perhaps by holds that are over
    looked = true
    aside()
    if wrong then return nil, 0 end
  end
  local gets = part and math.min(n, left, may) or n
  if left == 0 or gets > left then
    empty = empty or left == 0
    return nil, 3
  end
  if may <= 0 or gets > may then return nil, 7 end
  return gets
end

-- fault is an act's answer without an outcome.
local function fault(front) return front, 0, 0, 0, 0 end

-- never forbids an id of which nothing is known.
local function never(i, id)
  requests, goes = requests + 1, true
  put(i, 'C;0;0;0;;' .. call .. ';0;')
  over[#over + 1] = 'C;' .. id
end

-- had is the id of the call that changed the record last, and how many units the record had when they were held, if it has fewer now:
-- 'call*units', with what restock appends.
local function had(r)
  local by, units = r.by:match('^([^*.]*)%*?(%d*)')
  return by, tonumber(units) or tonumber(r.by:match('%.(%d+)$') or '') or r.n
end

-- Each act gets its number, the record that it finds, and what it asks for, and returns the five numbers of its answer.
local function reserve(i, r, id, claimant, n, ms, verb)
  if r then
    r = parse(r)
    if not r then return fault(-1) end
    n = n + 0
    if r.state == 'C' and r.asked == 0 then return fault(11) end
    if r.asked ~= 0 and (r.deadline == 0 or r.asked ~= n) or r.claimant ~= claimant then return fault(-3) end
    if r.state == 'C' then return fault(r.n == 0 and 10 or 11) end
    if r.state == 'R' then return fault(9) end
    if r.state == 'E' or r.state == 'H' and expired(r.deadline, now) then return fault(10) end
    replays = true
    return r.call == call and 1 or 2, r.ordinal, r.n, r.asked, r.state == 'H' and r.deadline - now or 0
  end
  local gets, refused = fits(claimant, n + 0, verb == 'V')
  if not gets then return fault(refused) end
  held, waiting, requests, goes = held + gets, waiting + 1, requests + 1, true
  tally(claimant, gets)
  local deadline, k = digits(now + ms), #hold
  put(i, 'H;0;' .. digits(gets) .. ';' .. n .. ';' .. call .. ';;' .. deadline .. ';' .. claimant)
  hold[k + 1], hold[k + 2] = deadline, id
  enter('held', 0, gets, claimant, id)
  return 1, 0, gets, n + 0, ms + 0
end

local function once(i, r, id, claimant, n, _, verb)
  if r then
    r = parse(r)
    if not r then return fault(-1) end
    n = n + 0
    if r.state == 'C' and r.asked == 0 then return fault(11) end
    if r.deadline ~= 0 or r.asked ~= n and r.asked ~= 0 or r.claimant ~= claimant then return fault(-3) end
    if r.state == 'R' and r.call ~= call then return fault(9) end
    replays = true
    return r.call == call and 1 or 2, r.ordinal, r.n, r.asked, 0
  end
  local gets, refused = fits(claimant, n + 0, verb == 'U')
  if not gets then return fault(refused) end
  if seq > 9007199254740991 - gets then return fault(-2) end
  local ordinal = seq + 1
  sold, seq, requests, goes = sold + gets, seq + gets, requests + 1, true
  tally(claimant, gets)
  put(i, 'G;' .. digits(ordinal) .. ';' .. digits(gets) .. ';' .. n .. ';' .. call .. ';;0;' .. claimant)
  enter('grant', ordinal, gets, claimant, id)
  return 1, ordinal, gets, n + 0, 0
end

-- answered is the answer to an act on a reservation that is not held any more, by what became of it. One that had expired before it was
-- cancelled, or confirmed in vain, has expired.
local function answered(r)
  local by, units = had(r)
  if r.state == 'C' then return r.n == 0 and r.asked > 0 and 10 or 11, 0, 0, units, 0 end
  if r.deadline == 0 and r.asked ~= 0 then return fault(-3) end
  if r.state == 'R' then return 9, 0, 0, units, 0 end
  if r.state ~= 'G' then return 10, 0, 0, units, 0 end
  replays = true
  return by == call and 1 or 2, r.ordinal, r.n, units, 0
end

-- confirm sells the units that are held, or the first keep of them; the others come back. If the time of the reservation is over, it
-- takes again what is left of them: a new claim then, under the same id, with new ordinals. It needs a stock that sells.
--
-- What it answers is decided for good, because money has moved: if it sells nothing it writes so. Otherwise a bank calls twice, and a
-- unit comes back in between: the first call says that all is to be refunded, and the second one sells the unit. So an id of which
-- nothing is known is forbidden too (TestAPaymentIsAnsweredOnceAndForAll). Only where the stock may sell the units later it decides nothing:
-- it is suspended or paused, or its start was put off.
--
-- The second run finds the record of the first. A copy that comes after another confirmation finds that one's.
local function confirm(i, r, id, keep)
  if not r then
    never(i, id)
    return fault(11)
  end
  local q = parse(r)
  if not q then return fault(-1) end
  if q.state ~= 'H' and q.state ~= 'E' then return answered(q) end
  if q.state == 'H' and expired(q.deadline, now) then -- one of more than 128: it must end before its units are taken again
    aside()
    return fault(10)
  end
  if doubted() then return fault(8) end
  local n, k, claimant = q.n, q.n, q.claimant
  if keep ~= '0' then k = math.min(k, keep + 0) end
  if q.state == 'H' then
    if n > held then return fault(-1) end
    if seq > 9007199254740991 - k then return fault(-2) end
    held, waiting = held - n, waiting - 1
    unhold[#unhold + 1] = id
    if k < n then
      unheld = unheld + n - k
      tally(claimant, k - n)
      enter('cancelled', 0, n - k, claimant, id)
    end
  else
    local closed = refusal()
    if closed and closed ~= 6 then return fault(closed) end
    if counts[claimant] == nil then
      counts[claimant] = redis.call('HGET', records, 'u:' .. claimant)
      local unit = recorded > 0 and redis.call('HGET', users, claimant)
      if unit and unit:byte(1) ~= 48 then single[claimant] = 1 end
    end
    k = fits(claimant, k, true)
    if wrong then return fault(0) end
    if not k then
      q.state, q.n, q.by = 'C', 0, call .. '*' .. digits(n)
      put(i, written(q))
      over[#over + 1] = 'C;' .. id
      return 10, 0, 0, n, 0
    end
    if seq > 9007199254740991 - k then return fault(-2) end
    tally(claimant, k)
  end
  goes = true
  enter(q.state == 'H' and 'grant' or 'late', seq + 1, k, claimant, id)
  q.state, q.ordinal, q.n, q.by = 'G', seq + 1, k, k < n and call .. '*' .. digits(n) or call
  sold, seq = sold + k, seq + k
  put(i, written(q))
  return 1, q.ordinal, k, n, 0
end

-- extend moves the deadline of a hold, and never to an earlier time. The record names the call that moved it: the second run moves it
-- no further. If the run is broken off between the record and the zset, the hold ends at its old deadline, as if this had not run.
local function extend(i, r, id, ms)
  if not r then return fault(-6) end
  local q = parse(r)
  if not q then return fault(-1) end
  if q.state ~= 'H' or expired(q.deadline, now) then return answered(q) end
  local deadline = now + ms
  if q.by == call or deadline <= q.deadline then
    replays = true
    return q.by == call and 1 or 2, 0, q.n, q.asked, q.deadline - now
  end
  if doubted() then return fault(8) end -- Restore writes the deadlines that it has read
  q.by, q.deadline = call, deadline
  put(i, written(q))
  local k = #hold
  hold[k + 1], hold[k + 2] = digits(deadline), id
  enter('extended', 0, q.n, q.claimant, id)
  return 1, 0, q.n, q.asked, ms + 0
end

local function cancel(i, r, id)
  if not r then
    never(i, id)
    return fault(0)
  end
  r = parse(r)
  if not r then return fault(-1) end
  if r.state == 'C' then return 0, r.by == call and r.n or 0, 0, 0, 0 end
  if r.deadline == 0 and r.asked ~= 0 then return fault(-3) end
  if r.state == 'H' and expired(r.deadline, now) then -- one of more than 128
    aside()
    return fault(0)
  end
  if r.state == 'E' then -- nothing comes back, and from now on nothing is confirmed either
    r.state, r.n, r.by = 'C', 0, call .. '*' .. digits(r.n)
    put(i, written(r))
    over[#over + 1] = 'C;' .. id
    return fault(0)
  end
  if r.state ~= 'H' then return fault(0) end
  if r.n > held then return fault(-1) end
  held, waiting, unheld = held - r.n, waiting - 1, unheld + r.n
  tally(r.claimant, -r.n)
  r.state, r.by = 'C', call
  put(i, written(r))
  over[#over + 1] = 'C;' .. id
  unhold[#unhold + 1] = id
  enter('cancelled', 0, r.n, r.claimant, id)
  return 0, r.n, 0, 0, 0
end

-- restock gives back what was sold but the first keep units. The number that is kept, and not the number that comes back, makes it
-- safe to repeat: a copy that comes after another return finds that it has so few already. A record of which units came back names
-- the call, how many came back by it, and how many units there were at first: 'call.back.first', and before that '*units', see had.
local function restock(i, r, id, keep)
  if not r then return fault(0) end
  r, keep = parse(r), keep + 0
  if not r then return fault(-1) end
  local by, units = had(r)
  if r.state == 'R' then return 0, by == call and keep == 0 and r.n or 0, 0, 0, 0 end
  if r.state ~= 'G' then return fault(0) end
  local back, first = r.by:match('%.(%d+)%.(%d+)$')
  if r.n <= keep then return 0, by == call and r.n == keep and back + 0 or 0, 0, 0, 0 end
  back = r.n - keep
  if back > sold then return fault(-1) end
  sold, unsold = sold - back, unsold + back
  tally(r.claimant, -back)
  if keep > 0 then
    r.by, r.n = call .. '*' .. digits(units) .. '.' .. digits(back) .. '.' .. (first or digits(r.n)), keep
  else
    r.state, r.by = 'R', units > r.n and call .. '*' .. digits(units) or call
    over[#over + 1] = 'R;' .. id
  end
  put(i, written(r))
  enter('return', r.ordinal + keep, back, r.claimant, id)
  return 0, back, 0, 0, 0
end

local VERBS = {R = reserve, V = reserve, O = once, U = once, C = confirm, E = extend, X = cancel, B = restock}
local WORDS = {R = 6, V = 6, O = 5, U = 5, C = 4, E = 4, X = 3, B = 4}
-- what each answers where there is no stock
local ABSENT = {R = 4, V = 4, O = 4, U = 4, C = -6, E = -6, X = 0, B = 0}

-- look reads what there is of the acts, which begin at these places in ARGV. It returns the places, or nil if an id is in two.
local function look()
  local places, whose, seen, at, n = {}, {}, {}, 4, 0
  while ARGV[at] do
    local verb, id = ARGV[at], ARGV[at + 1]
    if seen[id] then return end
    n, seen[id] = n + 1, true
    places[n], fields[n] = at, 'r:' .. id
    if WORDS[verb] > 4 then whose[#whose + 1] = ARGV[at + 3] end
    at = at + WORDS[verb]
  end
  if not was then return places end
  if requests > 0 then
    for i = 1, #whose do fields[n + i] = 'u:' .. whose[i] end
    found = redis.call('HMGET', records, unpack(fields))
    for i = 1, #whose do counts[whose[i]] = found[n + i] end
  end
  if recorded > 0 and #whose > 0 then
    local v = redis.call('HMGET', users, unpack(whose))
    for i = 1, #whose do
      if v[i] and v[i]:byte(1) ~= 48 then single[whose[i]] = 1 end -- '0': returned
    end
  end
  return places
end

-- save writes what was decided.
local function save()
  if unsold + unheld > 0 then free() end
  tell()
  finish(over)
  local k, none = #set, {}
  for claimant, n in pairs(totals) do
    if n == 0 then
      none[#none + 1] = 'u:' .. claimant
    else
      set[k + 1], set[k + 2], k = 'u:' .. claimant, digits(n), k + 2
    end
  end
  requests = requests - #none
  if goes then -- see the header: first without what comes back
    sold, held = sold + unsold, held + unheld
    count()
    sold, held = sold - unsold, held - unheld
  end
  redis.call('HSET', records, unpack(set))
  if #none > 0 then redis.call('HDEL', records, unpack(none)) end
  if #hold > 0 then redis.call('ZADD', holds, unpack(hold)) end -- before ZREM: a zset that is emptied and filled again has no end
  if #unhold > 0 then redis.call('ZREM', holds, unpack(unhold)) end
  if not goes or unsold + unheld > 0 then count() end

  -- What comes back and goes again within the call may be held for a shorter time than the flag stands.
  if was[6] <= 0 and limit - sold - held <= 0 and unsold + unheld > 0 then mark() end
  follow(was[6])
  -- A key that was there before has its end.
  if was[4] == 0 or was[5] == 0 or keeps == 1 then endless(records) end
end

-- decide does all of a call but its writes. It returns the reply, with 0 in front if conclude may follow.
local function decide()
  wrong = begin()
  if wrong and wrong ~= 'absent' then return wrong end
  local absent = wrong
  if absent then
    if not now then now, micros = clock() end
    epoch = 0
  end
  local notafter = tonumber(ARGV[3])
  if notafter == 0 or expired(notafter, now) then return {-11, now, 0} end
  if not absent then
    wrong = reap(128)
    if wrong then return wrong end
    forget(256) -- more than the acts of a call can end
    if waiting == 0 then redis.call('ZCARD', holds) end -- a key of another type fails here, before anything is written
    was = {sold, held, seq, requests, waiting, limit - sold - held}
  end
  local places = look()
  if not places then return redis.error_reply('ERR one id is in two acts of a call') end

  local out, k = {0, epoch, 0, now}, 4
  for i = 1, #places do
    local at = places[i]
    local verb = ARGV[at]
    if late(ARGV[at + 2], now) then
      out[k + 1], out[k + 2], out[k + 3], out[k + 4], out[k + 5] = -11, 0, 0, 0, 0
    elseif absent then
      out[k + 1], out[k + 2], out[k + 3], out[k + 4], out[k + 5] = ABSENT[verb], 0, 0, 0, 0
    else
      out[k + 1], out[k + 2], out[k + 3], out[k + 4], out[k + 5] = VERBS[verb](i, found[i], ARGV[at + 1], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], verb)
      if wrong then return wrong end
    end
    k = k + 5
  end
  if not absent then out[3] = limit - sold - held end
  return out
end

-- conclude writes what was decided.
local function conclude()
  if #set > 0 then
    save()
  elseif replays then
    own(ARGV[2])
  elseif empty and redis.call('EXISTS', flag) == 0 then
    mark()
  end
end

local function flight()
  local out = decide()
  if out[1] == 0 then conclude() end
  return out
end
