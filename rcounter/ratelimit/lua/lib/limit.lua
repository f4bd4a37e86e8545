-- What the scripts of rate limits share: how a limit is kept under its one key, and what it lets pass.
-- uses: clock
--
-- A limit is read into a table, l:
--   key, kind      of the key: 'none', 'string', 'zset'
--   algorithm      'g', 's', 'f', see below
--   by             which call took last: its id, '+' and how many units it took; '!' and the id if it gave them back; ''
--   room           units that may pass now
--   bad            -2: the key cannot be used, because it holds something else
--
-- 'g', the generic cell rate algorithm in its form with a level (ITU-T I.371, the "continuous-state leaky bucket", which is the same as the
-- virtual scheduling of arrival times): a unit adds per, every µs takes rate off, and units pass while the level stays within full, which
-- is burst * per. All of it is in whole numbers up to 2^53, so nothing is rounded, whatever the rate; and because only the time since the
-- last call counts, a clock that is set back costs that time and no more, where a stored arrival time would close the limiter for as long
-- as the step.
--
--   string  'g;at;level;per;by'
--
-- While units are reserved whose turn is yet to come, the key is a sorted set in place of that string:
--
--   'at;age;level;rate;per;full;freed;credit;most;sum;by'  -1    the state
--   'within;id;amount'                                     turn  a reservation: its call, and n * per
--
-- There the level is that of all turns that were given out, so it is above full, and what is above full is the line: the turns tile it
-- without a hole, each in a stretch as long as its amount takes to drain, with its turn at the end of it. age is a clock in µs that stands
-- still when the server's is set back; turns are instants of age, rounded up. within, of ten digits, is how far into the last µs before it
-- the turn is, so a position in the line, (turn - 1 - age) * rate + within, is exact, and turns of one µs are in their order.
--
-- A reservation that is cancelled in the middle leaves a hole. Its instant has not gone: it is still in the line. The next that reserves
-- gets the first hole that is long enough, at the turn that was freed, so no more units pass at any time than were promised. To lower the
-- level instead would give out the end of the line, where others pass already:
--
--   turns  1 2 3 4 … 50 | 51 … 100      the first 50 are cancelled, and the level is lowered by 50
--          . . . .  … . | 51 … 100      50 others get the turns 51 to 100, too: twice the rate, after a pause
--
-- As time passes over a hole it becomes credit: by so much is the bucket emptier than the line says. With credit units pass at once. A
-- bucket cannot be emptier than empty. So credit is at most full; it is at most full less the amount of a turn that passed, as the bucket
-- was that full just before it; and at most full less what has passed of the stretch of the next turn. That the largest amount of the line
-- is taken for that of the turns that passed is on the safe side.
--
-- A hole at the end of the line is no hole: the line ends with the last turn that is left. So when all have left, there is no line.
--
-- 's', a sliding window: at most limit units in any per µs. Units are counted in slices of a 32nd of per, and count until per after the
-- end of their slice: up to a 32nd too long, never too short.
--
--   string  's;at;by;end=units,end=units,…'     ends in µs, oldest first
--
-- 'f', a fixed window that ends with a unit of the calendar in a time zone, see window.
--
--   string  'f;window;units;by'
--
-- A charge is units that are settled later. Each open charge of a limit is a member of a sorted set, the key after those of the limits:
--
--   '1;id;n;kind'  mark    1 is the version; kind is the algorithm, of 'f' with the unit
--
-- The mark says where its units were counted, µs: the end of their slice, or of the fixed window. They go back there, and nowhere else.
-- The member is removed when the charge is settled, so a second settling finds nothing. It is kept for as long as its units count, and for
-- an hour after the end of the slice at least; after that the charge stays at its estimate.
--
-- While a limit of 'g' has open charges, its units are also counted in slices, of a 32nd of the time in which full drains:
--
--   string  'c;at;level;per;by;end=amount,end=amount,…'
--
-- The level alone does not say what may go back. A unit that has drained no longer counts, and some of what drained since may be others':
--
--   burst 10, 1 a second       level
--   0 s    A charges 10         10
--   10 s   A's have drained      0
--   10 s   B takes 10           10
--   10 s   A settles at 0       10    to lower the level by 10 would let 10 more pass: 20 at once
--
-- So the level never becomes lower than that of a bucket into which all that is left in the slices ran at their ends, see level_of.

local most = 9007199254740991
local turns = 500 -- that have passed and are read, in one script

-- Returns the position of a reservation in a line, and its amount. (Without the base some Lua takes digits after a 0 for octal ones.)
local function position_of(l, member, turn)
  return (turn - 1 - l.age) * l.rate + tonumber(member:sub(1, 10), 10), tonumber(member:match('%d+$'))
end

-- Returns the turn of a reservation at a position in a line, and its text.
local function turn_of(l, id, amount, position)
  local wait = math.ceil(position / l.rate)
  return digits(l.age + wait), string.format('%010.0f;%s;%.0f', position - (wait - 1) * l.rate, id, amount)
end

-- Returns the part of a line that is reserved: sum, less what has passed of the stretch of the next turn; and that part.
local function reserved_of(l)
  local first = redis.call('ZRANGE', l.key, '(' .. digits(l.age), '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
  if #first == 0 then return 0, 0 end
  local at, amount = position_of(l, first[1], first[2])
  local gone = math.max(0, amount - at)
  return l.sum - gone, gone
end

-- Reads a line, and has time pass.
local function line(l, now)
  local state = redis.call('ZRANGE', l.key, 0, 0)[1]
  local at, age, level, rate, per, full, freed, credit, amount, sum, by = state:match(
    '^(%d+);(%d+);(%d+);(%d+);(%d+);(%d+);(%d+);(%d+);(%d+);(%d+);(.*)$')
  if not at then l.bad = -2 return end
  at, age, level, freed, credit = tonumber(at), tonumber(age), tonumber(level), tonumber(freed), tonumber(credit)
  l.most, l.sum, l.by, l.line = tonumber(amount), tonumber(sum), by, true
  local past = math.max(0, now - at)
  l.age = age + past
  if tonumber(rate) ~= l.rate or tonumber(per) ~= l.per or tonumber(full) ~= l.full then
    -- Opened under other numbers: the same units, and turns that can no longer be given back.
    level = math.max(0, level - past * tonumber(rate))
    l.level, l.line, l.changed = math.min(most, math.ceil(level / tonumber(per) * l.per)), false, true
    return
  end
  -- Of a long line whose turns passed while no caller asked, each script reads a part. Until all are read it is not known how much of what was
  -- freed has passed: it stays freed, and becomes credit when the last part is read. Too few pass until then, never too many.
  local passed = redis.call('ZRANGE', l.key, 0, digits(l.age), 'BYSCORE', 'LIMIT', 0, turns + 1)
  l.changed = #passed > 0
  if #passed > turns then l.part = {state, unpack(passed, 1, turns)} end
  for i = 1, math.min(#passed, turns) do
    l.sum = l.sum - passed[i]:match('%d+$')
  end
  turns = turns - math.min(#passed, turns)
  l.level = math.max(0, level - past * l.rate)
  local left, gone = 0, 0
  l.freed = 0
  if l.level > l.full then
    left, gone = reserved_of(l)
    l.freed = l.part and freed or math.max(0, l.level - l.full - left)
  end
  l.credit = math.max(0, math.min(credit + freed - l.freed, l.full - gone))
  if #passed > 0 then l.credit = math.min(l.credit, math.max(0, l.full - l.most)) end
  if l.level <= l.full then -- the line has ended
    l.level, l.line = math.max(0, l.level - l.credit), false
  end
end

-- Returns the kind of a limit, as charges name it.
local function kind_of(l)
  return l.algorithm .. (l.unit or '')
end

-- Reads slices, moved back by so many µs. Those that count no more are left out: with 'g' what has not drained of them by the end of the
-- next slice counts there. Returns the sum.
local function read_slices(l, list, back, now)
  l.ends, l.units = {}, {}
  local sum, level, before = 0, 0, 0
  for e, n in list:gmatch('(%d+)=(%d+)') do
    local last, units = e - back, tonumber(n)
    if l.rate and #l.ends == 0 then units = units + math.max(0, level - (last - before) * l.rate) end
    if begun(last + l.lasts, now) then
      level, before = units, last
    else
      l.ends[#l.ends + 1], l.units[#l.units + 1] = last, units
      sum = sum + units
    end
  end
  return sum
end

-- Adds units to the present slice.
local function put(l, units)
  if #l.ends == 0 or l.ends[#l.ends] <= l.at then
    l.ends[#l.ends + 1], l.units[#l.units + 1] = l.at + math.max(1, math.ceil(l.lasts / 32)), 0
  end
  l.units[#l.units] = l.units[#l.units] + units
end

-- Returns slices as text.
local function list_of(l)
  local list = {}
  for i = 1, #l.ends do list[i] = string.format('%.0f=%.0f', l.ends[i], l.units[i]) end
  return table.concat(list, ',')
end

-- Returns the units that pass at once.
local function spare(l)
  if l.line then return math.floor(l.credit / l.per) end
  return math.max(0, math.floor((l.full - l.level) / l.per))
end

-- Reads a limit of the generic cell rate algorithm.
local function bucket(l, rate, per, burst, now)
  l.rate, l.per, l.full = tonumber(rate), tonumber(per), burst * per
  l.level, l.at, l.lasts = 0, now, math.ceil(l.full / l.rate)
  if l.kind == 'zset' then
    line(l, now)
  elseif l.value then
    local at, level, p, by, list = l.value:match('^[gc];(%d+);(%d+);(%d+);([^;]*);?(.*)$')
    if not at then l.bad = -2 return end
    level, p = tonumber(level), tonumber(p)
    if p ~= l.per then -- another period: the same number of units, of which none go back
      level, list = math.min(most, math.ceil(level / p * l.per)), ''
    end
    local past = now - at
    l.level, l.by, l.changed = math.max(0, level - math.max(0, past) * l.rate), by, past < 0
    if list ~= '' and l.level > 0 then
      read_slices(l, list, math.max(0, -past), now)
      if #l.ends == 0 then l.ends = nil end -- of a debt, which lasts longer
    end
  end
  if not l.bad then l.room = spare(l) end
end

-- Reads a sliding window.
local function sliding(l, limit, per, now)
  l.limit, l.per, l.at, l.ends, l.units = tonumber(limit), tonumber(per), now, {}, {}
  l.lasts = l.per
  local sum = 0
  if l.value then
    local at, by, list = l.value:match('^s;(%d+);([^;]*);(.*)$')
    if not at then l.bad = -2 return end
    local back = math.max(0, at - now) -- the clock was set back: what is counted moves with it
    l.by, l.changed = by, back > 0
    sum = read_slices(l, list, back, now)
  end
  l.room = l.limit - sum
end

-- Returns days since 1970 of the first day of a month, which counts from year 0 on, 0 being January.
local function monthday(month)
  local y, m = math.floor(month / 12), month % 12 + 1
  if m <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe, mp = y - era * 400, (m + 9) % 12
  return era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + math.floor((153 * mp + 2) / 5) - 719468
end

-- Returns the month of a day since 1970, as monthday counts them: the mean month is at most one off.
local function monthof(day)
  local month = math.floor((day + 719528) / 30.436875)
  while monthday(month) > day do month = month - 1 end
  while monthday(month + 1) <= day do month = month + 1 end
  return month
end

local seconds = {m = 60, h = 3600, d = 86400}

-- Returns the number of the calendar's unit in which a local time lies, s since 1970.
local function unit_of(unit, here)
  if seconds[unit] then return math.floor(here / seconds[unit]) end
  local day = math.floor(here / 86400)
  if unit == 'w' then return math.floor((day + 3) / 7) end -- 1970 began on a Thursday
  return math.floor(monthof(day) / (unit == 'Y' and 12 or 1))
end

-- Returns the local time at which a unit begins.
local function start_of(unit, number)
  if seconds[unit] then return number * seconds[unit] end
  if unit == 'w' then return (number * 7 - 3) * 86400 end
  return monthday(unit == 'Y' and number * 12 or number) * 86400
end

-- Returns the number of the calendar's unit that lasts at an instant, s, and when it ends; it is none before least. A zone is a list of
-- offsets from UTC in s, and the instants between them at which one follows the other: 'offset,instant,offset,instant,offset…'. They are
-- data of the calendar: what counts is the server's time. They reach from the last change of the clocks to beyond the unit's end.
--
-- A unit lasts until a later one begins. So where clocks are put forward a day has 23 hours, and where they are put back 25, and an hour that
-- comes twice is one unit, with what lies in between:
--
--   23:58  23:59  00:00  00:01 put back to 23:01 … 23:59  00:00      the new day lasts from the first 00:00 on
local function window(unit, zone, now, least)
  local list, i = {}, 1
  for n in zone:gmatch('-?%d+') do list[#list + 1] = tonumber(n) end
  while list[i + 1] and begun(list[i + 1], now) do i = i + 2 end
  local number = math.max(least, unit_of(unit, now + list[i]))
  if i > 1 then number = math.max(number, unit_of(unit, list[i - 1] - 1 + list[i - 2])) end
  local ends = start_of(unit, number + 1)
  local last = ends - list[i]
  while list[i + 1] and begun(list[i + 1], last) do -- the clocks change first
    i = i + 2
    last = math.max(list[i - 1], ends - list[i])
  end
  return number, last
end

-- Reads a fixed window.
local function fixed(l, limit, unit, zone, now)
  l.limit, l.units, l.unit = tonumber(limit), 0, unit
  local stored, ends
  if l.value then
    local u, n, units, by = l.value:match('^f;(%a)(%d+);(%d+);(.*)$')
    if not u then l.bad = -2 return end
    if u == unit then
      stored = tonumber(n)
      l.units, l.by = tonumber(units), by
    end
  end
  l.number, ends = window(unit, zone, math.floor(now / 1000000), stored or 0) -- the clock may have been set back: the later unit goes on
  if l.number ~= stored then l.units, l.by = 0, '' end
  l.last = ends * 1000000
  l.left, l.room = l.last - now, math.max(0, l.limit - l.units)
end

-- Reads a limit, from four arguments:
--   'g', rate, per in µs, burst      's', limit, per in µs, ''      'f', limit, unit, zone
-- value is what the key holds of the same algorithm. A limit of another one starts anew.
local function read_limit(key, algorithm, a, b, c, now)
  local l = {key = key, algorithm = algorithm, kind = redis.call('TYPE', key).ok, taken = 0, room = 0, by = ''}
  local value = l.kind == 'string' and redis.call('GET', key)
  local of = value and value:match('^([gcsf]);') or algorithm
  if of == algorithm or of == 'c' and algorithm == 'g' then l.value = value end
  if l.kind ~= 'none' and l.kind ~= 'string' and l.kind ~= 'zset' or
    l.kind == 'zset' and algorithm ~= 'g' and redis.call('ZCOUNT', key, -1, -1) == 0 then
    l.bad = -2
  elseif algorithm == 'g' then
    bucket(l, a, b, c, now)
  elseif algorithm == 's' then
    sliding(l, a, b, now)
  else
    fixed(l, a, b, c, now)
  end
  return l
end

-- Takes n units, of which there is room for so many.
local function take(l, n)
  l.room, l.taken = l.room - n, l.taken + n
  if l.line then
    l.credit = l.credit - n * l.per
  elseif l.algorithm == 'g' then
    l.level = l.level + n * l.per
    if l.ends then put(l, n * l.per) end
  elseif l.algorithm == 'f' then
    l.units = l.units + n
  else
    put(l, n)
  end
end

-- Takes n units as a charge, and returns its mark. In a line they are taken of credit, which cannot be given back: no slice ends now.
local function charge(l, n)
  if l.algorithm == 'g' and not l.line and not l.ends then
    l.ends, l.units = {}, {}
    if l.level > 0 then l.ends[1], l.units[1] = l.at, l.level end
  end
  take(l, n)
  return l.line and l.at or l.last or l.ends[#l.ends]
end

-- Returns for how many µs after its mark a charge is kept.
local function kept(l)
  return math.max(3600000000, l.lasts or 0)
end

-- Returns the position in a line at which the next n units pass; how much of a hole that takes, nil at the end of the line; and whether it is
-- the hole in which the present is, which takes the credit, too. Of a long line the first 64 turns are looked at: what lies behind them
-- comes nearer.
local function next_turn(l, n)
  local need, credit = n * l.per, l.credit
  if l.freed >= need - credit then
    local all = redis.call('ZRANGE', l.key, '(' .. digits(l.age), '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 64)
    local before = 0
    for i = 1, #all, 2 do
      local at, amount = position_of(l, all[i], all[i + 1])
      if before + need - credit <= at - amount then return before + need - credit, need - credit, i == 1 end
      before, credit = at, 0
    end
  end
  return l.level + need - l.full
end

-- Returns how many µs it is until n units could pass if no other request came.
local function waits(l, n)
  if n <= l.room then return 0 end
  if l.line then return math.ceil((next_turn(l, n)) / l.rate) end
  if l.algorithm == 'g' then return math.max(0, math.ceil((l.level + n * l.per - l.full) / l.rate)) end
  if l.algorithm == 'f' then return l.left end
  local room = l.room
  for i = 1, #l.ends do
    room = room + l.units[i]
    if room >= n then return l.ends[i] + l.per - l.at end
  end
  return l.per
end

-- Returns how many µs it is until nothing that was taken counts any more.
local function empty(l)
  if l.algorithm == 'g' then return math.ceil(l.level / l.rate) end
  if l.algorithm == 's' then return #l.ends > 0 and l.ends[#l.ends] + l.per - l.at or 0 end
  return l.units > 0 and l.left or 0
end

-- Writes a limit, and the turns in its line that follow, each with its text. Its key ends when nothing counts any more, which is what its
-- absence says. The rights to write a line are tried before its old state is removed, unless l.tried: a user who lacks a right would leave
-- a line without a state, which no call can read.
local function store(l, ...)
  if l.line then
    local ttl = digits(math.ceil(l.level / l.rate / 1000) + 1)
    if not l.tried then
      redis.call('PEXPIRE', l.key, ttl)
      redis.call('ZADD', l.key, 'XX', 0, '')
    end
    if l.part then
      redis.call('ZREM', l.key, unpack(l.part))
    else
      redis.call('ZREMRANGEBYSCORE', l.key, '-inf', digits(l.age)) -- the old state, and turns that have passed
    end
    redis.call('ZADD', l.key, -1, string.format('%.0f;%.0f;%.0f;%.0f;%.0f;%.0f;%.0f;%.0f;%.0f;%.0f;', l.at, l.age, l.level, l.rate, l.per,
      l.full, l.freed, l.credit, l.most, l.sum) .. l.by, ...)
    if l.tried then redis.call('PEXPIRE', l.key, ttl) end
    return
  end
  local value, ttl
  if l.algorithm == 'g' then
    local list = l.ends and list_of(l) or ''
    value, ttl = string.format('g;%.0f;%.0f;%.0f;', l.at, l.level, l.per) .. l.by, empty(l)
    if list ~= '' then value = 'c' .. value:sub(2) .. ';' .. list end
  elseif l.algorithm == 's' then
    value, ttl = 's;' .. digits(l.at) .. ';' .. l.by .. ';' .. list_of(l), empty(l)
  else
    -- It stays for up to an hour longer, should a client's table of its time zone be an old one.
    value, ttl = string.format('f;%s%.0f;%.0f;', l.unit, l.number, l.units) .. l.by, l.left + (l.unit == 'm' and 60000000 or 3600000000)
  end
  ttl = digits(math.max(1, math.ceil(ttl / 1000)))
  if l.kind == 'zset' then -- SET would free a long line before it replies. The first has no effect: it fails if there is no right to it
    redis.call('SET', l.key, value, 'PX', ttl, 'NX')
    redis.pcall('UNLINK', l.key)
  end
  redis.call('SET', l.key, value, 'PX', ttl)
end
