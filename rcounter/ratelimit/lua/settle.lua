-- Settles charges, for several callers: gives back what they have not used of their estimates, or takes the rest.
-- uses: clock, limit
--
-- KEYS     the limits, each once, and then the open charges of each: see the library
-- ARGV     for each limit: algorithm and its three numbers; how many charges; and of each its member, and how many units were used
--
-- Replies  {settled, units} for each charge, in one list
--          settled  1; 0: it is not open, because it was settled before, or was not counted, or is over; -2: see take.lua
--          units    that were taken, negative: that were given back
--
-- Safe to run twice: a charge that was settled is no longer open.
local _, now = clock()
local replies, count, a = {}, #KEYS / 2, 1

-- Returns the level of a bucket into which all that is in the slices ran as late as may be: at their ends, the last one's now. No slice
-- came later, so the true level is not higher.
local function level_of(l)
  local level, before = 0, 0
  for i = 1, #l.ends do
    local last = math.min(l.ends[i], now)
    level = math.max(0, level - (last - before) * l.rate) + l.units[i]
    before = last
  end
  return math.max(0, level - (now - before) * l.rate)
end

-- Gives units of a charge back to where they were counted. Returns how many no longer count: of 'g' it may be part of one.
local function give_back(l, n, mark)
  if l.line then return 0 end
  if l.algorithm == 'f' then
    local back = mark == l.last and math.min(n, l.units) or 0
    l.units, l.changed = l.units - back, true
    return back
  end
  for i = 1, l.ends and #l.ends or 0 do
    if l.ends[i] == mark then
      local back = math.min(n * (l.rate and l.per or 1), l.units[i])
      l.units[i], l.changed = l.units[i] - back, true -- of the slice, even if the level stays
      if not l.rate then
        l.room = l.room + back
        return back
      end
      local level = math.min(l.level, math.max(l.level - back, level_of(l)))
      back, l.level = l.level - level, level
      return back / l.per
    end
  end
  return 0
end

-- Takes units whether there is room or not, as long as the limit owes a burst at most. Returns how many. In a line they get a turn at its
-- end, a burst at most; id tells it from others.
local function owe(l, n, turns, id)
  local burst = l.limit or l.full / l.per
  if l.line then
    n = math.min(n, burst, math.floor((most - l.level) / l.per))
    if n > 0 then
      local amount = n * l.per
      l.level, l.sum, l.most, l.changed = l.level + amount, l.sum + amount, math.max(l.most, amount), true
      turns[#turns + 1], turns[#turns + 2] = turn_of(l, id, amount, l.level - l.full)
    end
    return n
  end
  local room = l.algorithm == 's' and l.room or l.algorithm == 'f' and l.limit - l.units or math.floor((l.full - l.level) / l.per)
  n = math.max(0, math.min(n, room + burst))
  if n > 0 then
    take(l, n)
    l.changed = true
  end
  return n
end

for i = 1, count do
  local key = KEYS[count + i]
  local l = read_limit(KEYS[i], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], now)
  local last, closed, settled, turns = a + 4 + 2 * ARGV[a + 4], {}, {}, {}
  for k = a + 5, last, 2 do
    local member, used, units = ARGV[k], tonumber(ARGV[k + 1]), 0
    local mark = not l.bad and not settled[member] and redis.call('ZSCORE', key, member)
    if mark and not begun(mark + kept(l), now) then
      closed[#closed + 1], settled[member] = member, true
      local id, n, kind = member:match('^1;([^;]*);(%d+);(%a+)$')
      if used > tonumber(n) then
        units = owe(l, used - n, turns, id)
      elseif kind == kind_of(l) then
        units = -give_back(l, n - used, tonumber(mark))
      end
    end
    if units < 0 then units = math.ceil(units - 0.5) end
    replies[#replies + 1], replies[#replies + 2] = l.bad or settled[member] and 1 or 0, units
  end
  a = last + 1
  if #closed > 0 then
    -- The right to remove charges is tried first, and they are removed last: one that stays open would be settled twice. What removes comes
    -- first, because a server without memory does not refuse it, nor what follows it.
    redis.call('ZREM', key, '')
    if l.rate and not l.line and l.ends and redis.call('ZCARD', key) == #closed then
      l.ends, l.changed = nil, true -- without open charges the level is enough
    end
    if l.changed then store(l, unpack(turns)) end
    redis.call('ZREM', key, unpack(closed))
  end
end
return replies
