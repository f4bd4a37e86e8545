-- A sale: its keys, its orders, and how a script reads and writes them.
-- uses: clock, ends, integer
--
-- KEYS[1]  the sale, a hash: state (1 open, 2 ended, 3 suspended, 4 paused), start, end and gone (server ms), epoch
--          (server us), remember (ms), spec (as it was opened), revision and changer (of change.lua), round and before
--          (of restore.lua); ledger (1 if there is one), serial (number of its last entry), moved (how many entries a
--          database has); fields (of KEYS[2]), reservations (members of KEYS[3]), own (1 once an order had its user's
--          name as id), counted (1 once a user had a count); of each item limit:, sold:, reserved:, seq:, per: and the
--          item's name
-- KEYS[2]  the orders, a hash: id -> record, see parse; '\0' item ',' user -> the user's units by orders of other ids
-- KEYS[3]  the reservations, a zset: id -> deadline in ms
-- KEYS[4]  the flags, a hash: item -> epoch, while nothing of the item is left. Any of them may be missing
-- KEYS[5]  the ledger, a stream, if the sale keeps one. Entries have the ids 1-0, 2-0, ... and the fields of log
-- KEYS[6]  the endings, a list: 'ms;state;id', the server's ms until which the record of an order that ended in this
--          state is kept
--
-- The hash ends with the retention, the other keys LATER, see ends.lua; the flags end when units may come back by time.
-- A key that has lost its end gets it back from the next call of Open, Change, EndSale, Inspect or Ledger: see
-- mend_ends.
--
-- The hash says how many fields, members and entries the other keys have. With any other number a script changes
-- nothing and replies {-1, said, found}, or {-13, said, found} for the ledger: an order whose record is missing could
-- be sold twice. A suspended sale replies {-10, 0, 0} before these are compared, because Restore writes one key after
-- the other.

-- The state of the script. items are the items that were read, by name; records and counts what was read of KEYS[2];
-- is_stored tells which counts KEYS[2] has. in_two_steps: see save. What save writes: entries, ended ('state;id'),
-- touched records, touched counts, reserve and unreserve. lapses counts the reservations that the script ended, and
-- wrong tells that a number or record is impossible: then nothing is written.
local s = {sale = KEYS[1], orders = KEYS[2], reservations = KEYS[3], flags = KEYS[4], ledger = KEYS[5],
  endings = KEYS[6], now = false, micros = false, state = false, start = false, ending = false, gone = false,
  epoch = false, fields = false, counted = false, waiting = false, own = false, keeps = false, serial = false,
  moved = false, remember = false, stored = false, found = false, items = {}, records = {}, counts = {}, is_stored = {},
  entries = {}, ended = {}, touched = {}, touched_counts = {}, reserve = {}, unreserve = {}, lapses = 0,
  in_two_steps = false, wrong = false}

local MAX = 9007199254740991

-- begin reads the sale. It returns nil, or the reply that says why nothing can be decided: {-6, 0, 0} if there is no
-- sale.
local function begin()
  s.now, s.micros = clock()
  local m = redis.call('HMGET', s.sale, 'state', 'start', 'end', 'gone', 'epoch', 'fields', 'counted', 'reservations',
    'own', 'ledger', 'serial', 'moved', 'remember')
  if not m[4] then
    local lost = redis.call('EXISTS', s.sale) == 0
      and orphans(redis.call('HLEN', s.orders) + redis.call('ZCARD', s.reservations) + redis.call('XLEN', s.ledger), 4)
    return {lost ~= 0 and -1 or -6, 0, lost or -1}
  end
  if not read_integers(m, 13) then
    refuse_newer(m[1])
    return {-1, -1, 0}
  end
  s.state, s.start, s.ending, s.gone, s.epoch, s.fields, s.counted = m[1], m[2], m[3], m[4], m[5], m[6], m[7]
  s.waiting, s.own, s.keeps, s.serial, s.moved, s.remember = m[8], m[9], m[10], m[11], m[12], m[13]
  if expired(s.gone, s.now) then
    remove()
    return {-6, 0, 0}
  end
  if s.state == 3 then return {-10, 0, 0} end
  local found_entries = s.keeps == 1 and redis.call('XLEN', s.ledger) or 0
  s.found = {redis.call('HLEN', s.orders), redis.call('ZCARD', s.reservations), found_entries}
  if s.found[1] ~= s.fields then return {-1, s.fields, s.found[1]} end
  if s.found[2] ~= s.waiting then return {-1, s.waiting, s.found[2]} end
  if s.keeps == 1 and s.found[3] ~= s.serial - s.moved then return {-13, s.serial - s.moved, s.found[3]} end
  s.stored = {fields = s.fields, counted = s.counted, reservations = s.waiting, own = s.own, serial = s.serial}
end

-- mend_ends gives all keys their ends if one has none: somebody has removed it, or a script was broken off before it
-- set it. If the records had no end, they would outlive the retention, and the sale would look like one that was lost:
-- see orphans. The scripts of orders do not call it, because they are frequent and it takes a command for each key.
-- Flags without an end are removed.
local function mend_ends()
  local has_endless = false
  for i = 1, 6 do has_endless = has_endless or redis.call('PTTL', KEYS[i]) == -1 end
  if not has_endless then return end
  redis.call('DEL', s.flags)
  expire(s.gone - s.now, 4)
end

-- item reads an item. unsold and unreserved are units that came back: see save. It is false for an item that the sale
-- has not. item_of reads the item of a line that an order has, so it must be there.
local function item(name)
  local t = s.items[name]
  if t ~= nil then return t end
  local v = redis.call('HMGET', s.sale, 'limit:' .. name, 'sold:' .. name, 'reserved:' .. name, 'seq:' .. name,
    'per:' .. name)
  t = false
  if v[1] then
    if not read_integers(v, 5) then
      s.wrong, v = true, {0, 0, 0, 0, 0}
    end
    t = {name = name, limit = v[1], sold = v[2], reserved = v[3], seq = v[4], per = v[5], unsold = 0, unreserved = 0}
    if t.sold < 0 or t.reserved < 0 or t.sold + t.reserved > t.limit or t.sold > t.seq then s.wrong = true end
    t.stored, t.before = {t.sold, t.reserved, t.seq}, t.limit - t.sold - t.reserved
  end
  s.items[name] = t
  return t
end
local function item_of(l)
  local t = item(l.item)
  if t then return t end
  s.wrong = true
  return {name = l.item, limit = 0, sold = 0, reserved = 0, seq = 0, per = 0, unsold = 0, unreserved = 0}
end
local function left_of(t) return t.limit - t.sold - t.reserved end

-- parse reads a record: 'ordinal', a unit of the item '' that was bought by an order with its user's name; or
-- 'state deadline;item,asked,n,ordinal|item,asked,n,ordinal;user'. States: R reserved, L lapsed, S sold; closed: C
-- cancelled, E expired (paid too late, in vain), G returned, F forbidden (of an id that the sale did not know). n is
-- how many units the line has, and of L, how many it had. After the return of a part, an order of Anyone has a line for
-- each range that is still sold.
local function parse(id, text)
  if not text then return false end
  if text:find('^%d') then
    return {state = 'S', deadline = 0, user = id, {item = '', asked = 1, n = 1, ordinal = text + 0}}
  end
  local is, deadline, of, user = text:match('^(%u)(%d*);([^;]*);(.*)$')
  if not is then
    s.wrong = true
    return false
  end
  local r = {state = is, deadline = tonumber(deadline) or 0, user = user}
  s.wrong = s.wrong or of == '' and is ~= 'F'
  for name, asked, n, ordinal in of:gmatch('([^,|]*),(%d+),(%d+),(%d+)') do
    r[#r + 1] = {item = name, asked = asked + 0, n = n + 0, ordinal = ordinal + 0}
  end
  return r
end
local function written(id, r)
  local first, of = r[1], {}
  if r.state == 'S' and id == r.user and #r == 1 and first.item == '' and first.asked == 1 and first.n == 1 then
    return digits(first.ordinal)
  end
  for i, l in ipairs(r) do
    of[i] = l.item .. ',' .. digits(l.asked) .. ',' .. digits(l.n) .. ',' .. digits(l.ordinal)
  end
  return r.state .. (r.state == 'R' and digits(r.deadline) or '') .. ';' .. table.concat(of, '|') .. ';' .. r.user
end
local function order(id)
  local r = s.records[id]
  if r == nil then
    r = parse(id, redis.call('HGET', s.orders, id))
    s.records[id] = r
  end
  return r
end

-- log notes an entry of the ledger: kind, id, user, item, asked, n, first ordinal (0: none), until (server ms, 0:
-- none), why the order is closed, at (server us), epoch. Its kinds are in ledger.go. All entries have all fields, in
-- this order: see moved.lua in internal/ledger.
local function log(kind, id, r, l, n, ordinal, why)
  if s.keeps ~= 1 then return end
  local till = (kind == 'reserved' or kind == 'extended') and r.deadline or 0
  s.entries[#s.entries + 1] = {'k', kind, 'd', id, 'u', r.user, 'i', l and l.item or '',
    'a', l and digits(l.asked) or '0', 'n', digits(n), 'o', digits(ordinal or 0), 't', digits(till), 'w', why or '',
    'at', digits(s.micros), 'e', digits(s.epoch)}
end

-- The units of a user, by item. An order with its user's name is not counted, which makes Buy cheap: allowed looks at
-- it.
local function count_of(t, user)
  local field = '\0' .. t.name .. ',' .. user
  if not s.counts[field] then
    local n = s.counted == 1 and redis.call('HGET', s.orders, field)
    s.counts[field], s.is_stored[field] = tonumber(n or 0), n and true
  end
  return field
end
local function tally(t, id, user, n)
  if user == '' or id == user then return end
  local field = count_of(t, user)
  s.counts[field], s.touched_counts[field] = s.counts[field] + n, true
  if s.counts[field] < 0 then s.wrong = true end
end
local function allowed(t, id, user)
  if user == '' then return MAX end
  local has = s.counts[count_of(t, user)]
  local own = (id == user or s.own == 1) and order(user)
  if own and id ~= user and own.user == user and (own.state == 'R' or own.state == 'S') then
    for _, l in ipairs(own) do if l.item == t.name then has = has + l.n end end
  end
  return math.max(0, t.per - has)
end

local function put(id, r)
  if not s.records[id] then
    s.fields = s.fields + 1
    if id == r.user then s.own = 1 end
  end
  s.records[id], s.touched[id] = r, true
end
local function close(id, r, state)
  r.state, r.deadline = state, 0
  put(id, r)
  s.ended[#s.ended + 1] = state .. ';' .. id
end
local function unreserve(id, r, l, n)
  local t = item_of(l)
  t.reserved, t.unreserved, s.in_two_steps = t.reserved - n, t.unreserved + n, true
  tally(t, id, r.user, 0 - n)
end
local function no_reservation(id)
  s.waiting = s.waiting - 1
  s.unreserve[#s.unreserve + 1] = id
end

-- lapse ends a reservation whose time is over. Its units go back.
local function lapse(id, r)
  for _, l in ipairs(r) do
    unreserve(id, r, l, l.n)
    log('lapsed', id, r, l, l.n)
  end
  s.lapses = s.lapses + 1
  no_reservation(id)
  close(id, r, 'L')
end

-- read_all reads the records of orders and the counts of their users, in few commands: one by one, 128 of them took 8
-- ms.
local function read_all(ids)
  if #ids == 0 then return end
  local found, fields, seen = redis.call('HMGET', s.orders, unpack(ids)), {}, {}
  for i, id in ipairs(ids) do
    if s.records[id] == nil then s.records[id] = parse(id, found[i]) end
    local r = s.records[id]
    for _, l in ipairs(r or {}) do
      local field = '\0' .. l.item .. ',' .. r.user
      if r.user ~= '' and r.user ~= id and not s.counts[field] and not seen[field] then
        fields[#fields + 1], seen[field] = field, true
      end
    end
  end
  if s.counted ~= 1 then return end
  for at = 1, #fields, 4000 do
    local n = redis.call('HMGET', s.orders, unpack(fields, at, math.min(#fields, at + 3999)))
    for i = 1, #n do
      local field = fields[at + i - 1]
      s.counts[field], s.is_stored[field] = tonumber(n[i] or 0), n[i] and true
    end
  end
end

-- lapse_due ends at most so many reservations whose time is over, and returns how many it ended.
local function lapse_due(most)
  if s.waiting == 0 then return 0 end
  local before = s.lapses
  local ids = redis.call('ZRANGE', s.reservations, '-inf', elapsed(s.now), 'BYSCORE', 'LIMIT', 0, most)
  read_all(ids)
  for _, id in ipairs(ids) do
    local r = s.records[id]
    if r and r.state == 'R' and expired(r.deadline, s.now) then lapse(id, r) end
  end
  return s.lapses - before
end
local function has_more_due()
  return s.waiting > 0 and redis.call('ZCOUNT', s.reservations, '-inf', elapsed(s.now)) > s.lapses
end

-- refusal is why nothing new is sold now, as a code of decide.
local function refusal()
  if s.state == 2 or begun(s.ending, s.now) then return 6 end
  if s.state == 4 then return 12 end
  if not begun(s.start, s.now) then return 5 end
end

-- forget removes the records that were kept long enough, at most so many. It is complete in itself. An order that
-- ended, was changed and ended again has two endings: the first of them does not fit its state, or is of the same state
-- and was due anyway.
local function forget(most)
  local due, over = redis.call('LRANGE', s.endings, 0, most - 1), 0
  for _, ending in ipairs(due) do
    local last, state, id = ending:match('^(%d+);(%u);(.*)$')
    if not last or not expired(last, s.now) then break end
    over = over + 1
    local text = redis.call('HGET', s.orders, id)
    if text and text:sub(1, 1) == state then
      redis.call('HDEL', s.orders, id)
      s.fields, s.found[1] = s.fields - 1, s.found[1] - 1
    end
  end
  if over == 0 then return end
  redis.call('HSET', s.sale, 'fields', digits(s.fields))
  redis.call('LPOP', s.endings, over)
  s.stored.fields = s.fields
end

-- flag_empty notes of which items nothing is left, until units may come back without a write, or the answer is another
-- one: at the next deadline, or at the end. All flags end together, because the next deadline may be that of any item.
local function flag_empty()
  local empty, ms = {}, s.ending - s.now
  for name, t in pairs(s.items) do
    if t and left_of(t) <= 0 and redis.call('HEXISTS', s.flags, name) == 0 then empty[#empty + 1] = name end
  end
  if #empty == 0 or refusal() then return end
  if s.waiting > 0 then ms = math.min(ms, redis.call('ZRANGE', s.reservations, 0, 0, 'WITHSCORES')[2] - s.now) end
  if ms <= 0 then return end
  for _, name in ipairs(empty) do redis.call('HSET', s.flags, name, digits(s.epoch)) end
  redis.call('PEXPIRE', s.flags, digits(ms))
end

-- write_numbers writes the numbers that changed. Until the last time units that came back count as taken, and entries
-- that say so are not counted: see save.
local function write_numbers(is_last)
  local v, n = {}, 0
  local function set(name, is) v[n + 1], v[n + 2], n = name, digits(is), n + 2 end
  local is = {fields = s.fields, counted = s.counted, reservations = s.waiting, own = s.own,
    serial = is_last and s.serial or s.stored.serial}
  for name, was in pairs(s.stored) do
    if is[name] ~= was then set(name, is[name]) end
  end
  s.stored = is
  for name, t in pairs(s.items) do
    if t then
      local now = is_last and {t.sold, t.reserved, t.seq} or {t.sold + t.unsold, t.reserved + t.unreserved, t.seq}
      if now[1] ~= t.stored[1] then set('sold:' .. name, now[1]) end
      if now[2] ~= t.stored[2] then set('reserved:' .. name, now[2]) end
      if now[3] ~= t.stored[3] then set('seq:' .. name, now[3]) end
      t.stored = now
    end
  end
  if n > 0 then redis.call('HSET', s.sale, unpack(v)) end
end

-- in_parts calls write with parts of a list, because unpack has a bound of some 8000.
local function in_parts(list, write)
  for at = 1, #list, 4000 do write(at, math.min(#list, at + 3999)) end
end
local function outlive(key, found)
  if found == 0 then redis.call('PEXPIRE', key, ttl_until(s.gone + LATER, s.now)) end
end

-- save writes what was decided, and reports whether that was anything. A run that is broken off between any two writes
-- has sold too little, and where the ledger has told of more than that, the next script says that something is missing:
--
--   1 flags of items whose units come back: it frees memory, so a server whose memory is full takes it, and then the
--     rest
--   2 entries of the ledger: the next script finds more than the hash says (-13)
--   3 endings: one whose record does not have its state does nothing
--   4 numbers, in which units that come back are still taken. The entries are counted too, if the next write makes or
--     removes a record or a reservation
--   5 records, counts, reservations: the next script finds another number of them than the hash says (-1)
--   6 if in_two_steps: numbers in which units that come back are free, and the entries are counted
--   7 the ends of keys that are new. Before it is there, a key can have none. A user who may not set ends has decided
--     all the same, and the next call of the operator sets them: see mend_ends
local function save()
  if not next(s.touched) then return false end
  if s.in_two_steps then
    for name, t in pairs(s.items) do
      if t and (t.unsold > 0 or t.unreserved > 0) then redis.call('HDEL', s.flags, name) end
    end
  end
  for i, entry in ipairs(s.entries) do redis.call('XADD', s.ledger, digits(s.serial + i) .. '-0', unpack(entry)) end
  s.serial = s.serial + #s.entries
  local endings = 0
  if #s.ended > 0 then
    local last = digits(s.now + s.remember) .. ';'
    for i = 1, #s.ended do s.ended[i] = last .. s.ended[i] end
    endings = redis.call('RPUSH', s.endings, unpack(s.ended))
  end
  local fields, none = {}, {}
  for id in pairs(s.touched) do
    fields[#fields + 1] = id
    fields[#fields + 1] = written(id, s.records[id])
  end
  for field in pairs(s.touched_counts) do
    local n, had = s.counts[field], s.is_stored[field]
    if n > 0 then
      fields[#fields + 1] = field
      fields[#fields + 1] = digits(n)
      s.counted = 1
    elseif had then
      none[#none + 1] = field
    end
    s.fields = s.fields + (n > 0 and 1 or 0) - (had and 1 or 0)
  end
  write_numbers(not s.in_two_steps)
  in_parts(fields, function(from, to) redis.call('HSET', s.orders, unpack(fields, from, to)) end)
  in_parts(none, function(from, to) redis.call('HDEL', s.orders, unpack(none, from, to)) end)
  if #s.reserve > 0 then redis.call('ZADD', s.reservations, unpack(s.reserve)) end
  if #s.unreserve > 0 then redis.call('ZREM', s.reservations, unpack(s.unreserve)) end
  if s.in_two_steps then write_numbers(true) end
  outlive(s.orders, s.found[1])
  if #s.reserve > 0 then outlive(s.reservations, s.found[2]) end
  if #s.entries > 0 then outlive(s.ledger, s.found[3]) end
  if endings > 0 then outlive(s.endings, endings - #s.ended) end
  return true
end
