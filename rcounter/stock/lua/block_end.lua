-- Notes how many units of a block were handed out, and ends the block if that is wanted: what was not handed out goes
-- back to the stock.
-- uses: clock, stock
--
-- KEYS     those of stock.lua; the record is that of block.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing changes: see own in stock.lua
-- ARGV[3]  id of the block
-- ARGV[4]  how many were handed out
-- ARGV[5]  'flush' go on, 'close' end it, both for its owner; 'settle' end it for an owner that is gone
-- ARGV[6]  for 'flush', ms from now until its owner stops
--
-- Replies  { 0, taken, returned}   done; taken is what the block has now
--          { 1, taken, 0}          ended before, with that many handed out: nothing changed
--          { 2, ms, 0}             its owner may still hand out units, for so long: nothing settled
--          { 3, taken, 0}          the owner has said to have handed out more than that, or it is more than there were
--          {-1, said, found}
--          {-6, 0, 0}              no stock, or no such block
--
-- Safe to run twice: a count only goes up, a deadline only forward, and a block ends once; the record names the call
-- that ended it. A block that is closed before it was made never will be: 'close' leaves a record, which block.lua finds.
local call, sure, id, taken, act = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

local wrong = present({-6, 0, 0})
if wrong then return wrong end
local before = limit - sold - held

local block = redis.call('HGET', stock, 'block:' .. id)
local record = requests > 0 and redis.call('HGET', records, 'a:' .. id)
if not block then
  if record == '0;0;' .. call then
    own(sure)
    return {0, 0, 0}
  end
  if record or act ~= 'close' then return {-6, 0, 0} end
  forbid(id, call)
  return {0, 0, 0}
end
local life, said, deadline, owner = block:match('^(%u);(%d+);(%d+);(.*)$')
if not life or not record then return {-1, -1, 0} end
local ordinal, n, parts = record:match('^(%d+);(%d+)(.*)$')
if not n then return {-1, -1, 0} end
ordinal, n, said, deadline = tonumber(ordinal), tonumber(n), tonumber(said), tonumber(deadline)

if life ~= 'O' then
  own(sure)
  if owner ~= call then return {1, said, 0} end
  return {0, said, n - said}
end
if act == 'settle' and now < deadline then return {2, deadline - now, 0} end
if taken > n or act == 'settle' and taken < said then return {3, said, 0} end
taken = math.max(taken, said)

if act == 'flush' then
  deadline = math.max(deadline, now + tonumber(ARGV[6]))
  redis.call('HSET', stock, 'block:' .. id, 'O;' .. digits(taken) .. ';' .. digits(deadline) .. ';' .. owner)
  return {0, taken, 0}
end

-- What was not handed out goes back, but for units that were returned one by one before (see returnany.lua).
local past = {}
for f, c in parts:gmatch(';(%d+)%.(%d+)%.[^;]*') do past[#past + 1] = {tonumber(f), tonumber(c)} end
table.sort(past, function(a, b) return a[1] < b[1] end)
past[#past + 1] = {ordinal + n, 0} -- the end
local from, rest, pieces = ordinal + taken, 0, {}
for _, p in ipairs(past) do
  local c = math.min(p[1], ordinal + n) - from
  if c > 0 then
    pieces[#pieces + 1], rest = {from, c}, rest + c
    record = record .. ';' .. digits(from) .. '.' .. digits(c) .. '.' .. call
  end
  from = math.max(from, p[1] + p[2])
end
if rest > sold then return {-1, -1, 0} end
for _, p in ipairs(pieces) do enter('return', p[1], p[2], '', id) end
tell()
-- the block names this call instead of the owner, by which a second run knows its own work
redis.call('HSET', stock, 'block:' .. id, (act == 'settle' and 'S;' or 'C;') .. digits(taken) .. ';0;' .. call)
if rest > 0 then
  redis.call('HSET', records, 'a:' .. id, record)
  sold = sold - rest
  count()
end
settle(before, records)
return {0, taken, rest}
