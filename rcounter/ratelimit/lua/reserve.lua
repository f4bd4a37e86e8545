-- Reserves n units of a limit of the generic cell rate algorithm: at once, or at a turn in its line.
-- uses: clock, limit
--
-- KEYS[1]  the limit: see the library
-- ARGV[1]  id of this call
-- ARGV[2]  rate
-- ARGV[3]  per, µs
-- ARGV[4]  burst
-- ARGV[5]  n, 1 to burst
-- ARGV[6]  most µs that the caller would wait: '0' to pass at once or not at all
--
-- Replies  {reserved, wait, free, empty, turn}
--          reserved  1, or 0: the turn would come too late, nothing was taken; -2: see take.lua
--          wait      us from now until the turn
--          free      units that could pass at once now, afterwards
--          empty     us until no unit that was taken counts any more
--          turn      by which cancel.lua finds the reservation; 0: its units pass at once
--
-- Safe to run twice: the last call is known by its id, and one that was cancelled is not made again while that cancelling is the last that
-- happened. If another call came in between, the second run reserves again: too few pass then, never too many.
local id, n, patience = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])
local _, now = clock()
local l = read_limit(KEYS[1], 'g', ARGV[2], ARGV[3], ARGV[4], now)
if l.bad then return {l.bad, 0, 0, 0, 0} end

local function answer(reserved, wait, at)
  return {reserved, wait, spare(l), empty(l), at}
end

local had = l.by:sub(1, #id + 1) == id .. '@' and tonumber(l.by:sub(#id + 2))
if had then return answer(1, l.line and math.max(0, had - l.age) or 0, had) end
if l.by == id .. '+' .. digits(n) then return answer(1, 0, 0) end
if l.by == '!' .. id then return answer(0, 0, 0) end

if n <= l.room then
  take(l, n)
  l.by = l.line and id .. '@0' or id .. '+' .. digits(n) -- credit cannot be given back
  store(l)
  return answer(1, 0, 0)
end

local need, position, hole, here = n * l.per
if l.line then position, hole, here = next_turn(l, n) else position = l.level + need - l.full end
local wait = math.ceil(position / l.rate)
if wait > patience or not hole and l.level + need > most then
  if l.changed then store(l) end
  return answer(0, wait, 0)
end
local added = {}
if not l.line then
  -- All that a line needs is tried before the state without one is removed: it would be lost for a user who lacks a right, and others would
  -- pass. ZADD adds nothing, and comes first, because a server without memory refuses it.
  for _, tried in ipairs({redis.pcall('ZADD', l.key, 'XX', 0, ''), redis.pcall('ZREMRANGEBYSCORE', l.key, 1, 0),
    redis.pcall('PEXPIRE', l.key, digits(math.ceil((l.level + need) / l.rate / 1000) + 1))}) do
    if type(tried) == 'table' and not string.find(tried.err, 'WRONGTYPE', 1, true) then return tried end
  end
  l.line, l.age, l.sum, l.most, l.freed, l.credit, l.tried = true, now, 0, 0, 0, 0, true
  if l.kind == 'zset' then redis.pcall('UNLINK', l.key) end -- of a long line DEL alone would take long
  if l.kind ~= 'none' then redis.call('DEL', l.key) end
  l.part = nil
  if l.level > l.full then -- turns under other numbers, which cannot be given back: one in their place
    l.sum, l.most = l.level - l.full, l.full
    added[1], added[2] = turn_of(l, '!', l.sum, l.sum)
  end
end
if hole then
  l.freed = l.freed - hole
  if here then l.credit = 0 end
else
  l.level = l.level + need
end
local at, turn = turn_of(l, id, need, position)
added[#added + 1] = at
added[#added + 1] = turn
l.sum, l.most, l.by = l.sum + need, math.max(l.most, need), id .. '@' .. at
store(l, unpack(added))
return answer(1, wait, l.age + wait)
