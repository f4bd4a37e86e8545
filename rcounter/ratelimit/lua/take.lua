-- Takes units from rate limits, for several requests of one process, each in its turn: now, or not at all.
-- uses: clock, limit
--
-- KEYS     the limits, each once: see the library
-- ARGV[1]  id of this call
-- ARGV     for each of KEYS: algorithm and its three numbers
-- ARGV     for each request: of how many limits it takes units, all or none, or '0' for as many as there are of one; and for each of
--          these the index in KEYS, and n, which may be 0 to look
--
-- Replies  {taken, wait, free, empty} for each n, in one list
--          taken    units that were taken; -1: these could not pass, so the request took none; -2: the key holds another type; -3: or something
--                   else; then the request took none either
--          wait     us until n units could pass if nobody else comes
--          free     units that could pass at once now, after this request
--          empty    us until no unit that was taken counts any more
--
-- Safe to run twice: a limit whose last call was this one knows how many units it took, and the second run gives out those again, to the
-- same requests: one that was refused was for more than were left, so for more than those that came after it took together. If another
-- call came in between, the second run takes the units again: too few pass then, never too many.
--
-- What nearly all calls are, requests for units of one limit each, by the generic cell rate algorithm, with no line and no news, is done
-- first, without the library's functions, which take longer to make than all that. The rest is left to them: nothing was written then.
local id, time, replies = ARGV[1], redis.call('TIME'), {}
local now = time[1] * 1000000 + time[2]
local max, floor, ceil = math.max, math.floor, math.ceil
local a, plain, all = 2, true, {}
for i = 1, #KEYS do
  local rate, per, level, by = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), 0, ''
  local kind = redis.call('TYPE', KEYS[i]).ok
  if ARGV[a] ~= 'g' then
    plain = false
  elseif kind == 'string' then
    local at, was, p, last = redis.call('GET', KEYS[i]):match('^g;(%d+);(%d+);(%d+);(.*)$')
    local past = at and now - at or -1
    plain = past >= 0 and tonumber(p) == per
    if plain then level, by = max(0, was - past * rate), last end
  else
    plain = kind == 'none'
  end
  if not plain then break end
  local full = ARGV[a + 3] * per
  local l = {level, max(0, floor((full - level) / per)), rate, per, full, 0}
  if by ~= '' and by:sub(1, #id + 1) == id .. '+' then l[7] = tonumber(by:sub(#id + 2)) end
  all[i] = l
  a = a + 4
end
local o = 0
while plain and ARGV[a] do
  local upto = ARGV[a] == '0'
  if not upto and ARGV[a] ~= '1' then plain = false break end
  local l, n = all[tonumber(ARGV[a + 1])], tonumber(ARGV[a + 2])
  local level, per, takes, wait = l[1], l[4], n, 0
  local room = l[7] or l[2]
  if n > room then
    takes = upto and room or -1
    if takes < 1 then wait = max(0, ceil((level + (upto and 1 or n) * per - l[5]) / l[3])) end
  end
  if takes > 0 and l[7] then
    l[7] = room - takes
  elseif takes > 0 then
    level = level + takes * per
    l[1], l[2], l[6] = level, room - takes, l[6] + takes
  end
  replies[o + 1], replies[o + 2], replies[o + 3], replies[o + 4] = takes, wait, l[2], ceil(level / l[3])
  o, a = o + 4, a + 3
end
if plain then
  for i = 1, #all do
    local l = all[i]
    if l[6] > 0 then
      redis.call('SET', KEYS[i], string.format('g;%.0f;%.0f;%.0f;%s+%.0f', now, l[1], l[4], id, l[6]), 'PX', string.format('%.0f', max(1, ceil(l[1] / l[3] / 1000))))
    end
  end
  return replies
end
replies, a = {}, 2

-- libraries

local limits = {}
for i = 1, #KEYS do
  local l = read_limit(KEYS[i], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], now)
  if l.by and l.by:sub(1, #id + 1) == id .. '+' then l.again, l.spare, l.room = true, l.room, tonumber(l.by:sub(#id + 2)) end
  limits[i] = l
  a = a + 4
end

while ARGV[a] do
  local parts = tonumber(ARGV[a])
  local upto = parts == 0
  if upto then parts = 1 end
  local passes = true
  for p = 1, parts do
    local l, n = limits[tonumber(ARGV[a + 2 * p - 1])], tonumber(ARGV[a + 2 * p])
    if l.bad or not upto and n > 0 and n > l.room then passes = false end
  end
  for p = 1, parts do
    local l, n = limits[tonumber(ARGV[a + 2 * p - 1])], tonumber(ARGV[a + 2 * p])
    if l.bad then
      for _, v in ipairs({l.bad, 0, 0, 0}) do replies[#replies + 1] = v end
    else
      local takes = passes and math.min(n, math.max(0, l.room)) or 0
      local fails = not passes and n > 0 and n > l.room
      local wait = 0
      if fails or upto and takes == 0 and n > 0 then wait = waits(l, upto and 1 or n) end
      if takes > 0 and l.again then
        l.room = l.room - takes
      elseif takes > 0 then
        take(l, takes)
      end
      replies[#replies + 1] = fails and -1 or takes
      replies[#replies + 1] = wait
      replies[#replies + 1] = math.max(0, l.again and l.spare or l.room)
      replies[#replies + 1] = empty(l)
    end
  end
  a = a + 1 + 2 * parts
end

for i = 1, #limits do
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
return replies
