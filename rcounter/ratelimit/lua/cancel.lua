-- Gives the units of a reservation back.
-- uses: clock, limit
--
-- KEYS[1]  the limit: see the library
-- ARGV[1]  id of the call that reserved
-- ARGV[2]  rate
-- ARGV[3]  per, µs
-- ARGV[4]  burst
-- ARGV[5]  n
-- ARGV[6]  its turn, as reserve.lua replied; '' if the reply is not known
--
-- Replies  {1, 0, free, empty, 0}  given back: its turn had not come, or nothing was taken since
--          {0, 0, free, empty, 0}  nothing was given back; -2, -3: see take.lua
--
-- Safe to run twice: the second run finds no reservation. A turn that was given to another meanwhile is known by that one's id.
local id, n, at = ARGV[1], tonumber(ARGV[5]), ARGV[6]
local _, now = clock()
local l = read_limit(KEYS[1], 'g', ARGV[2], ARGV[3], ARGV[4], now)
if l.bad then return {l.bad, 0, 0, 0, 0} end

local back = 0
if l.line and at ~= '0' then
  local from, to = at, at
  if at == '' then from, to = '(' .. digits(l.age), '+inf' end
  local all = redis.call('ZRANGE', l.key, from, to, 'BYSCORE', 'WITHSCORES')
  for i = 1, #all, 2 do
    if all[i]:find(';' .. id .. ';', 1, true) and tonumber(all[i + 1]) > l.age then
      local here, amount = position_of(l, all[i], all[i + 1])
      redis.call('ZREM', l.key, all[i])
      back, l.sum = 1, l.sum - amount
      l.credit = math.min(l.full, l.credit + math.max(0, amount - here)) -- and what has passed of its stretch
    end
  end
  if back == 1 then
    local last = redis.call('ZRANGE', l.key, 0, 0, 'REV', 'WITHSCORES')
    if tonumber(last[2]) <= l.age then -- the state, or a turn that has passed: the line is empty
      l.level, l.line = math.max(0, l.full - l.credit), false
    else
      l.level = l.full + position_of(l, last[1], last[2])
      local left, gone = reserved_of(l)
      l.freed = l.level - l.full - left
      l.credit = math.min(l.credit, math.max(0, l.full - gone))
    end
  end
elseif l.by == id .. '+' .. digits(n) then
  back, l.level = 1, math.max(0, l.level - n * l.per)
end
if back == 1 then
  l.by = '!' .. id
  store(l)
end
return {back, 0, spare(l), empty(l), 0}
