-- Takes units from rate limits, for several requests of one process, each in its turn: now, or not at all.
-- uses: clock, limit
--
-- KEYS     the limits, each once: see the library; and then, if there are charges, the open charges of each
-- ARGV[1]  id of this call
-- ARGV     for each of KEYS: algorithm and its three numbers, and runs of requests that are alike. Of each run: how many requests, negative if
--          each takes as many units as there are, up to n; and n, which may be 0 to look
-- ARGV     '&', if there are requests of several limits, or charges; and for each request: '#' and its id, if it is a charge; of how many
--          limits it takes units, all or none, or '-1' for as many as there are of one; and for each of these the index in KEYS, and n. The
--          index is negative if the limit refuses nothing: then it takes n units, or none. Then no key has runs
--
-- Replies  {taken, wait, free, state} for each run and for each n after '&', in one list
--          taken    units that were taken, by all requests of the run; 0 or -1: the first could not pass, and took none; after '&' only -1
--                   says so; -2: the key holds something else; then the request took none either
--          wait     us until n units could pass if no other request comes, for those that took none
--          free     units that could pass at once now, after this run
--          state    what is left of the units that were taken. Not negative: the level, of which each unit is per and rate drains in a us, so
--                   that the caller knows it after each request of the run. Negative: -1, less the us until none counts any more
--
-- Safe to run twice: a limit whose last call was this one knows how many units it took, and the second run gives out those again, to the
-- same requests: one that was refused was for more than were left, so for more than those that came after it took together. If another
-- call came in between, the second run takes the units again: too few pass then, never too many.
--
-- What nearly all calls are, requests for units of one limit each, by the generic cell rate algorithm, with no line and no news, is done
-- first, without the library's functions, which take longer to make than all that: limit after limit, and each run of alike requests at
-- once. At the first limit that is something else it ends, and that one and the others are left to the library. GET is refused of a line; TYPE
-- would say so too, and would take an eighth of each call's time.
local id, time, replies = ARGV[1], redis.call('TIME'), {0, 0, 0, 0}
local args, number = ARGV, tonumber
local now, a, o, done = time[1] * 1000000 + time[2], 2, 0, 0
for i = 1, #KEYS do
  local k = number(args[a + 4])
  if args[a] ~= 'g' or not k then break end
  local value = redis.pcall('GET', KEYS[i])
  local p, level, again = args[a + 2], 0, nil
  local rate, per = number(args[a + 1]), number(p)
  if value then
    if value.err then break end
    local at, was, of = value:match('^g;(%d+);(%d+);(%d+);')
    local past = at and of == p and now - at or -1
    if past < 0 then break end
    level = was - past * rate
    if level < 0 then level = 0 end
    if value:find(id, 1, true) then
      local _, last = value:find(';' .. id .. '+', 1, true)
      if last then again = number(value:sub(last + 1)) end
    end
  end
  local full = args[a + 3] * per
  local room, taken = math.floor((full - level) / per), 0
  if room < 0 then room = 0 end
  local left, text = again or room, args[a + 5]
  a = a + 4
  repeat
    local n, wait = number(args[a + 1]), 0
    local units, least = k * n, n
    if k < 0 then units, least = -units, 1 end
    local short = units > left
    if short then units = k < 0 and left or left - left % n end
    left = left - units
    local state
    if again then
      state = -1 - math.ceil(level / rate)
    else
      level, room, taken = level + units * per, room - units, taken + units
      state = level
    end
    if short then
      wait = math.ceil((level + least * per - full) / rate)
      if wait < 0 then wait = 0 end
    end
    replies[o + 1], replies[o + 2], replies[o + 3], replies[o + 4] = units, wait, room, state
    o, a = o + 4, a + 2
    k = number(args[a])
  until not k
  if taken > 0 then
    local ttl = math.ceil(level / rate / 1000)
    if taken ~= number(text) then text = string.format('%.0f', taken) end
    redis.call('SET', KEYS[i], string.format('g;%.0f;%.0f;%s;%s+%s', now, level, p, id, text), 'PX', ttl > 1 and ttl or 1)
  end
  done = i
end
if done == #KEYS then return replies end

-- libraries

local opened = {} -- charges: the index of the limit, n, the mark, the id

-- Takes units for requests that are alike, one after the other until one does not pass: of each wanted limit n, all or none; upto: as many
-- as there are of the one; id: of a charge. Replies for each limit.
local function serve(count, upto, wanted, id)
  local sums, short = {}, false
  for p = 1, #wanted do sums[p] = 0 end
  local function lacks(l, n) return l.bad or n > 0 and (upto and 1 or n) > l.room end
  for _ = 1, count do
    for _, w in ipairs(wanted) do
      w.lacks = lacks(w.l, w.n)
      short = short or w.lacks and not w.shadow
    end
    if short then break end -- and so do those that follow
    for p, w in ipairs(wanted) do
      local took = w.shadow and w.lacks and 0 or math.max(0, math.min(w.n, w.l.room))
      sums[p] = sums[p] + took
      if took > 0 and w.l.again then
        w.l.room = w.l.room - took
      elseif took > 0 and id then
        opened[#opened + 1] = {w.i, took, charge(w.l, took), id}
      elseif took > 0 then
        take(w.l, took)
      end
    end
  end
  for p, w in ipairs(wanted) do
    local l, n = w.l, w.n
    if l.bad then
      replies[o + 1], replies[o + 2], replies[o + 3], replies[o + 4] = l.bad, 0, 0, 0
    else
      local refuses = w.lacks and (short or w.shadow)
      local state = l.algorithm == 'g' and not l.line and not l.again and l.level or -1 - empty(l)
      replies[o + 1] = refuses and not upto and sums[p] == 0 and -1 or sums[p]
      replies[o + 2] = refuses and waits(l, upto and 1 or n) or 0
      replies[o + 3], replies[o + 4] = math.max(0, l.again and l.spare or l.room), state
    end
    o = o + 4
  end
end

local limits, count = {}, done
while ARGV[a] and ARGV[a] ~= '&' do
  count = count + 1
  local i = count
  local l = read_limit(KEYS[i], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], now)
  if l.by and l.by:sub(1, #id + 1) == id .. '+' then l.again, l.spare, l.room = true, l.room, tonumber(l.by:sub(#id + 2)) end
  limits[i] = l
  a = a + 4
  local k = tonumber(ARGV[a])
  while k do
    serve(math.abs(k), k < 0, {{l = l, n = tonumber(ARGV[a + 1])}})
    a = a + 2
    k = tonumber(ARGV[a])
  end
end

a = a + 1
while ARGV[a] do
  local of = ARGV[a]:match('^#(.*)')
  if of then a = a + 1 end
  local parts, wanted = tonumber(ARGV[a]), {}
  for p = 1, math.abs(parts) do
    local i = tonumber(ARGV[a + 2 * p - 1])
    wanted[p] = {l = limits[math.abs(i)], i = math.abs(i), n = tonumber(ARGV[a + 2 * p]), shadow = i < 0}
  end
  serve(1, parts < 0, wanted, of)
  a = a + 1 + 2 * #wanted
end

-- What charges need is tried before anything is taken, and changes nothing but old charges. ZADD adds nothing, and comes first, because a
-- server without memory refuses it.
local ttls = {}
for _, c in ipairs(opened) do
  local l, key = limits[c[1]], KEYS[count + c[1]]
  if not ttls[key] then
    redis.call('ZADD', key, 'XX', 0, '')
    redis.call('ZREMRANGEBYSCORE', key, '-inf', elapsed(now - kept(l)))
  end
  ttls[key] = digits(math.ceil((c[3] - now + kept(l)) / 1000))
  redis.call('PEXPIRE', key, ttls[key])
end

for i = done + 1, count do
  local l = limits[i]
  if not l.bad and not l.again and (l.taken > 0 or l.changed) then
    if l.line then
      l.by = '' -- credit cannot be given back
    elseif l.taken > 0 then
      l.by = id .. '+' .. digits(l.taken)
    end
    store(l)
  end
end
-- After what was taken: a charge whose units were not would give back those of others.
for _, c in ipairs(opened) do
  local key, member = KEYS[count + c[1]], string.format('1;%s;%.0f;%s', c[4], c[2], kind_of(limits[c[1]]))
  redis.call('ZADD', key, 'NX', digits(c[3]), member)
end
for key, ttl in pairs(ttls) do redis.call('PEXPIRE', key, ttl) end
return replies
