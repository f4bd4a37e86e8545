-- Gives the units of a reservation back.
-- uses: clock, limit
--
-- KEYS[1]  the limit: see the library
-- ARGV[1]  id of the call that reserved
-- ARGV[2]  rate
-- ARGV[3]  per, µs
-- ARGV[4]  burst
-- ARGV[5]  n
-- ARGV[6]  its turn, as reserve.lua replied; '' if the reply is not known: then it is looked for among the next 250 turns, where holes are
--          given out, and among the last 250, which it is one of unless as many have reserved since
--
-- Replies  {1, 0, free, empty, 0}  given back: its turn had not come, or nothing was taken since
--          {0, 0, free, empty, 0}  nothing was given back; -2: see take.lua
--
-- Safe to run twice: the second run finds no reservation. A turn that was given to another meanwhile is known by that one's id.
local id, n, at = ARGV[1], tonumber(ARGV[5]), ARGV[6]
local _, now = clock()
local l = read_limit(KEYS[1], 'g', ARGV[2], ARGV[3], ARGV[4], now)
if l.bad then return {l.bad, 0, 0, 0, 0} end

local back = 0
if l.line and at ~= '0' then
  local level = l.level
  local function find(all)
    for i = 1, #all, 2 do
      if all[i]:find(';' .. id .. ';', 1, true) and tonumber(all[i + 1]) > l.age then
        local here, amount = position_of(l, all[i], all[i + 1])
        -- All that the turn is given back with is tried before it is removed, and changes nothing: a turn that is gone and not free would be
        -- of no use to others. What removes comes first, because a server without memory does not refuse it, nor what follows it.
        redis.call('ZREMRANGEBYSCORE', l.key, 1, 0)
        redis.call('PEXPIRE', l.key, digits(math.ceil(level / l.rate / 1000) + 1))
        redis.call('ZADD', l.key, 'XX', 0, '')
        redis.call('SET', l.key, '', 'NX')
        l.tried = true
        redis.call('ZREM', l.key, all[i])
        back, l.sum, l.freed = 1, l.sum - amount, l.freed + math.min(amount, here)
        l.credit = math.min(l.full, l.credit + math.max(0, amount - here)) -- and what has passed of its stretch
      end
    end
  end
  if at == '' then
    local now = '(' .. digits(l.age)
    find(redis.call('ZRANGE', l.key, now, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 250))
    if back == 0 then
      find(redis.call('ZRANGE', l.key, '+inf', now, 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, 250))
    end
  else
    find(redis.call('ZRANGE', l.key, at, at, 'BYSCORE', 'WITHSCORES'))
  end
  if back == 1 then
    local last = redis.call('ZRANGE', l.key, 0, 0, 'REV', 'WITHSCORES')
    if tonumber(last[2]) <= l.age then -- the state, or a turn that has passed: the line is empty
      l.level, l.line = math.max(0, l.full - l.credit), false
    else
      l.level = l.full + position_of(l, last[1], last[2])
      local _, gone = reserved_of(l)
      l.freed = math.max(0, l.freed + l.level - level) -- the line ends with the last turn that is left
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
