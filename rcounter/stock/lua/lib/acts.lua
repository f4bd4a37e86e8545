-- What is done to orders by their ids: each verb, and how a script does several.
-- uses: clock, sale
--
-- A verb gets the id, the record (false: none) and its arguments. It returns a code of decide, true if it changed the
-- order, and what is left of each line if it refused.

-- units_for is how many units of each line there are for an order, or nil, the code and what is left. part: fewer than
-- wanted will do.
local function units_for(id, user, lines, part)
  local n, sum, why, left, refused = {}, 0, 3, {}, false
  for i, l in ipairs(lines) do
    local t = item(l.item)
    if not t then return nil, -7 end
    local may = allowed(t, id, user)
    left[i] = digits(left_of(t))
    n[i] = math.min(l.asked, left_of(t), may)
    if n[i] < l.asked and not refused then
      why, refused = left_of(t) < l.asked and left_of(t) <= may and 3 or 7, not part
    end
    if t.seq > MAX - n[i] then return nil, -2 end
    sum = sum + n[i]
  end
  if refused or sum == 0 then return nil, why, table.concat(left, ',') end
  return n
end

-- sell sells n units of a line, with the next ordinals.
local function sell(id, r, l, n, kind)
  local t = item_of(l)
  l.n, l.ordinal = n, n > 0 and t.seq + 1 or 0
  t.sold, t.seq = t.sold + n, t.seq + n
  if n > 0 or kind == 'sold' then log(kind, id, r, l, n, l.ordinal) end -- of a new order, all lines are told
end

-- wanted reads what an order asks for: 'item,n|item,n', with '+' in front if fewer will do. amounts is the same by
-- item.
local function wanted(user, of)
  local r = {state = '', deadline = 0, user = user}
  for name, n in of:gmatch('([^,|+]*),(%d+)') do r[#r + 1] = {item = name, asked = n + 0, n = 0, ordinal = 0} end
  return r
end
local function amounts(of)
  local by = {}
  for name, n in of:gmatch('([^,|]*),(%d+)') do by[name] = (by[name] or 0) + n end
  return by
end
local function is_like(r, wants)
  if r.state == 'F' then return true end
  if r.user ~= wants.user or #r ~= #wants then return false end
  for i, l in ipairs(r) do
    if l.item ~= wants[i].item or l.asked ~= wants[i].asked then return false end
  end
  return true
end

-- create makes an order: reserved for ms, or sold if ms is nil. What is known already stays as it is.
local function create(id, r, user, of, ms)
  local wants = wanted(user, of)
  if r then return is_like(r, wants) and 0 or -3 end
  local why = refusal()
  if why == 5 then return 5, nil, digits(s.start - s.now) end
  if why then return why end
  local n, code, left = units_for(id, user, wants, of:sub(1, 1) == '+')
  if not n then return code, nil, left end
  r = wants
  r.state, r.deadline = ms and 'R' or 'S', ms and s.now + ms or 0
  for i, l in ipairs(r) do
    local t = item_of(l)
    tally(t, id, user, n[i])
    if ms then
      t.reserved, l.n = t.reserved + n[i], n[i]
      log('reserved', id, r, l, n[i])
    else
      sell(id, r, l, n[i], 'sold')
    end
  end
  if ms then
    s.waiting = s.waiting + 1
    s.reserve[#s.reserve + 1] = digits(r.deadline)
    s.reserve[#s.reserve + 1] = id
  end
  put(id, r)
  return 0, true
end

-- extend moves the deadline of a reservation, and never to an earlier time.
local function extend(id, r, ms)
  if not r or r.state ~= 'R' or s.now + ms <= r.deadline then return 0 end
  r.deadline = s.now + ms
  s.reserve[#s.reserve + 1] = digits(r.deadline)
  s.reserve[#s.reserve + 1] = id
  log('extended', id, r, nil, 0)
  s.in_two_steps = true
  put(id, r)
  return 0, true
end

-- void closes an order that has no units, or an id that the sale does not know. Money moves upon it, so it is written:
-- otherwise a bank calls twice, a unit comes back in between, and the first call has it refunded and the second sold.
local function void(id, r, state, why)
  r, s.in_two_steps = r or {deadline = 0, user = ''}, true -- an unknown order has no lines
  log('void', id, r, nil, 0, 0, why)
  close(id, r, state)
  return 0, true
end

-- pay_reserved sells what is reserved and paid for. The rest goes back.
local function pay_reserved(id, r, paid)
  local sum = 0
  for i, l in ipairs(r) do sum = sum + paid[i] end
  if sum == 0 then return -3 end -- what was paid for is not of this order
  for i, l in ipairs(r) do
    local t, rest = item_of(l), l.n - paid[i]
    t.reserved = t.reserved - paid[i]
    if rest > 0 then
      unreserve(id, r, l, rest)
      log('unpaid', id, r, l, rest)
    end
    sell(id, r, l, paid[i], 'paid')
  end
  r.state, r.deadline = 'S', 0
  no_reservation(id)
  put(id, r)
  return 0, true
end

-- pay_lapsed sells what is left of what was paid for, or closes the order. It decides nothing while the sale may sell
-- later: it is paused, or its start was put off.
local function pay_lapsed(id, r, paid)
  local why, wants, sum = refusal(), {user = r.user}, 0
  if why == 5 then return 5, nil, digits(s.start - s.now) end
  if why and why ~= 6 then return why end
  for i, l in ipairs(r) do wants[i], sum = {item = l.item, asked = paid[i]}, sum + paid[i] end
  if sum == 0 then return -3 end
  local n, code
  if not why then n, code = units_for(id, r.user, wants, true) end
  if code and code < 0 then return code end
  if not n then
    if code and has_more_due() then return code end -- perhaps by reservations that are over: see decide
    return void(id, r, 'E', 'expired')
  end
  for i, l in ipairs(r) do
    tally(item_of(l), id, r.user, n[i])
    sell(id, r, l, n[i], 'late')
  end
  r.state, s.in_two_steps = 'S', true
  put(id, r)
  return 0, true
end

-- unknown is for an id of which the sale knows nothing: it is forbidden, or, unless forbids is '1', the caller asks its
-- book first.
local function unknown(id, forbids)
  if forbids ~= '1' then return -9 end
  return void(id, false, 'F', 'forbidden')
end

-- pay decides once: what later payments say was paid changes nothing.
local function pay(id, r, of, forbids)
  if not r then return unknown(id, forbids) end
  if r.state ~= 'R' and r.state ~= 'L' then return 0 end
  local by, paid = of ~= '' and amounts(of), {}
  for i, l in ipairs(r) do paid[i] = by and math.min(by[l.item] or 0, l.n) or l.n end
  return (r.state == 'R' and pay_reserved or pay_lapsed)(id, r, paid)
end

local function cancel(id, r, forbids)
  if not r then return unknown(id, forbids) end
  if r.state == 'L' then return void(id, r, 'C', 'cancelled') end
  if r.state ~= 'R' then return 0 end
  for _, l in ipairs(r) do
    unreserve(id, r, l, l.n)
    log('cancelled', id, r, l, l.n)
  end
  no_reservation(id)
  close(id, r, 'C')
  return 0, true
end

-- take_back takes n units of a line back, from ordinal on.
local function take_back(id, r, l, ordinal, n)
  local t = item_of(l)
  t.sold, t.unsold, s.in_two_steps = t.sold - n, t.unsold + n, true
  tally(t, id, r.user, 0 - n)
  log('returned', id, r, l, n, ordinal)
end
local function is_empty(r)
  for _, l in ipairs(r) do
    if l.n > 0 then return false end
  end
  return true
end

-- give_back ends an order, sold or not. With keeps the first so many units of each line stay sold; that is for sold
-- orders only. What is kept, and not what comes back, makes it safe to repeat.
local function give_back(id, r, keeps, forbids)
  if not r or r.state ~= 'S' then
    if keeps ~= '' then return 0 end
    return cancel(id, r, forbids)
  end
  local by, did = amounts(keeps), false
  for _, l in ipairs(r) do
    local k = math.min(by[l.item] or 0, l.n)
    if k < l.n then
      take_back(id, r, l, l.ordinal + k, l.n - k)
      l.n, did = k, true
    end
  end
  if not did then return 0 end
  if is_empty(r) then close(id, r, 'G') else put(id, r) end
  return 0, true
end

-- give_back_part takes a range of units back from an order of Anyone, as far as they are in its lines: others came back
-- before. An id that the sale does not know is forbidden: the call that would sell under it may be on its way
-- (TestAnyone_GivenUp_NeverRuns).
local function give_back_part(id, r, ordinal, n)
  if not r then return unknown(id, '1') end
  if r.state ~= 'S' then return 0 end
  local did, last = false, ordinal + n - 1
  for i = 1, #r do
    local l = r[i]
    local from, to = math.max(ordinal, l.ordinal), math.min(last, l.ordinal + l.n - 1)
    if from <= to then
      local rest = l.ordinal + l.n - 1 - to
      take_back(id, r, l, from, to - from + 1)
      l.n, did = from - l.ordinal, true
      if rest > 0 then r[#r + 1] = {item = l.item, asked = 0, n = rest, ordinal = to + 1} end
    end
  end
  if not did then return 0 end
  if is_empty(r) then close(id, r, 'G') else put(id, r) end
  return 0, true
end

-- act does one verb by its letter. ROOM is how many arguments each has, with letter, id and last.
local ROOM = {B = 5, R = 6, E = 4, P = 5, C = 4, G = 5, A = 5, S = 3}
local function act(verb, id, r, first, second, third)
  if verb == 'B' then return create(id, r, first, second) end
  if verb == 'R' then return create(id, r, first, second, third + 0) end
  if verb == 'E' then return extend(id, r, first + 0) end
  if verb == 'P' then return pay(id, r, first, second) end
  if verb == 'C' then return cancel(id, r, first) end
  if verb == 'G' then return give_back(id, r, first, second) end
  if verb == 'A' then return give_back_part(id, r, first + 0, second + 0) end
  return 0
end

-- decide does the acts in ask from the index 3 on, each with an id that no other has, and returns the reply of act.lua.
-- ask[1] is '1' if replicas confirm the answers: WAIT waits only for what its own connection has written, so a call
-- that only finds a record writes something that changes nothing. It comes after the record in the server's history, so
-- a replica that has it has the record.
--
-- Reservations that are over are ended first: that of the order, 32 others, and 256 before a refusal. If there are
-- more, the code is -12, and the caller asks again: otherwise 300 reservations are over, and a customer hears "sold
-- out".
local function decide(ask)
  local wrong = begin()
  if wrong then return wrong end
  if expired(ask[2], s.now) then return {-11, s.now, 0} end
  forget(256)
  lapse_due(32)
  local at, places, ids = 3, {}, {}
  while ask[at] do
    places[#places + 1], ids[#ids + 1] = at, ask[at + 1]
    at = at + ROOM[ask[at]]
  end
  read_all(ids)
  local out, finds = {0, s.epoch, s.now}, false
  for i, p in ipairs(places) do
    local id, code, did, text = ids[i], -11, false, nil
    if not expired(ask[p + 2], s.now) then
      local r = order(id)
      if r and r.state == 'R' and expired(r.deadline, s.now) then lapse(id, r) end
      code, did, text = act(ask[p], id, r, ask[p + 3], ask[p + 4], ask[p + 5])
      if (code == 3 or code == 7) and lapse_due(256) > 0 then
        code, did, text = act(ask[p], id, order(id), ask[p + 3], ask[p + 4], ask[p + 5])
      end
      if (code == 3 or code == 7) and has_more_due() then code = -12 end
    end
    local r = s.records[id]
    finds = finds or code == 0 and r
    if code == 0 then text = r and written(id, r) end
    out[#out + 1] = code
    out[#out + 1] = text or ''
    out[#out + 1] = did and 0 or 1
  end
  if s.wrong then return {-1, -1, 0} end
  if not save() and finds and ask[1] == '1' then redis.call('HSET', s.sale, 'state', digits(s.state)) end
  flag_empty()
  return out
end
