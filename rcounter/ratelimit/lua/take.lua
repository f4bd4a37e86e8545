-- Takes n units from a rate limiter, or says how long to wait for them; or gives the last ones back.
-- uses: clock
--
-- KEYS[1]  the limiter of one key, a string: 'at;level;per;id', see below
-- ARGV[1]  id of this call
-- ARGV[2]  rate, units that a period lets through
-- ARGV[3]  per, the period in us
-- ARGV[4]  burst, units that may pass at once after a pause
-- ARGV[5]  n, 0 to burst: 0 only looks; negative gives -n back, if nothing was taken since by another call
-- ARGV[6]  most us that the caller would wait: '0' to pass at once or not at all
--
-- Replies  {passed, wait, free, empty}
--          passed   1 if the units were taken, or given back
--          wait     us from now until they may be used (0: now); if not passed, until it may be asked again
--          free     units that could pass at once now, afterwards
--          empty    us until no unit that was taken counts any more
--
-- This is the generic cell rate algorithm in its form with a level (ITU-T I.371, the "continuous-state leaky bucket",
-- which is the same as the virtual scheduling of arrival times): a unit adds per, every us takes rate off, and the level
-- may not pass burst * per. All of it is in whole numbers up to 2^53, so nothing is rounded, whatever the rate; and
-- because only the time since the last call counts, a clock that is set back costs that time and no more, where a
-- stored arrival time would close the limiter for as long as the step.
--
-- Safe to run twice: a call whose id is still the last one takes nothing more, nor does one that was the last and was
-- given back ('!' and its id). If another came in between, the second run takes the units again: too few pass then, never
-- too many.
--
-- The key ends when the level would be empty, which is what its absence says.
local key, id = KEYS[1], ARGV[1]
local rate, per, burst, n, patience = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local most = 9007199254740991

local _, now = clock()
local level, last, back = 0, '', false

local old = redis.call('GET', key)
if old then
  local at, l, p, by = old:match('^(%d+);(%d+);(%d+);(.*)$')
  at, l, p = tonumber(at), tonumber(l), tonumber(p)
  if not (at and l and p) or p < 1 then return redis.error_reply('ERR the key of a rate limiter holds something else') end
  if p ~= per then l = math.min(most, math.ceil(l / p * per)) end -- opened under another period: the same number of units
  level, last = l, by
  local past = now - at
  if past > 0 then level = math.max(0, level - past * rate) end
  back = past < 0
end

-- store writes the level of now.
local function store(by)
  redis.call('SET', key, string.format('%.0f;%.0f;%.0f;', now, level, per) .. by, 'PX', digits(math.max(1, math.ceil(level / rate / 1000))))
end

-- The clock was set back. Time counts again from its present value, also for calls that are refused below.
if back then store(last) end

-- answer is the reply for a level.
local function answer(passed, wait)
  return {passed, wait, math.max(0, math.floor((burst * per - level) / per)), math.ceil(level / rate)}
end

local mine = last == id
if n < 0 then
  if not mine then return answer(0, 0) end
  level, id = math.max(0, level + n * per), '!' .. id
elseif n == 0 then
  return answer(1, 0)
elseif last == '!' .. id then
  return answer(0, 0)
elseif not mine then
  local wait = math.max(0, math.ceil((level + n * per - burst * per) / rate))
  if wait > patience or level + n * per > most then return answer(0, wait) end
  level = level + n * per
end

store(id)
return answer(1, math.max(0, math.ceil((level - burst * per) / rate)))
