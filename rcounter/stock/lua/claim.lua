-- Claims one unit for each of some claimants, in their order.
-- uses: clock, rare, state, stock
--
-- KEYS     those of stock.lua. A claimant's record in KEYS[2] is 'ordinal;call', after a return
--          '0;call;returned;by', where by is the id of the call that returned the ordinal returned; a later claim keeps
--          that: 'ordinal;call;returned;by'
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is granted and a claimant has a unit: see touch in rare.lua
-- ARGV[3…] the claimants, 1 to 128
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, outcome, ordinal …}
--          {-1, said, found}   records are missing, or numbers that cannot be (said is -1): nothing granted
--          {-2, 0, 0}          the ordinals are used up: nothing granted
--          {-12, 0, 0}         call again, see reap_more in rare.lua: nothing granted
--          outcomes: 1 granted, 2 replayed, 3 sold out, 4 not open, 5 not started, 6 ended, 7 the claimant has as many
--          as it may have, 8 suspended
--
-- The claimant's record comes first, then the window, then what is left. If what is left came first: ann wins the last unit, her
-- reply is lost, she asks again, and hears "sold out" (testdata/scripts/claim.txt).
--
-- Safe to run twice: the second run finds the records of the first, and the call's id in them says that they are its own. If a
-- unit was returned in between, its record still names the call that had claimed it, and that call gets its first answer and
-- nothing new. Otherwise a late copy would claim a unit of which no caller knows (testdata/scripts/claim.txt). (The record has only the last
-- return: a copy so late that its claimant has claimed and returned a second time since is a claim like any other.)
--
-- A missing key fails closed. Without a stock there is no grant, and nothing is created. With fewer records of claimants than
-- the stock has counted there is no grant, because those that are missing have units. Everything is decided and checked before
-- the first write. (To end the holds whose time is over is complete in itself.)
--
-- What comes first does in a straight line what the rest does for one claimant, if nothing is out of the ordinary: the stock sells,
-- has claimants and nothing else, no record is missing, this claimant has none, and more than this unit is left. Before it has
-- written anything it can leave everything to the rest.
if not ARGV[4] then
  local m = redis.call('HMGET', KEYS[1], 'sold', 'seq', 'recorded', 'limit', 'requests', 'holds', 'held', 'state', 'ledger', 'start', 'end', 'epoch')
  if m[5] == '0' and m[6] == '0' and m[7] == '0' and m[8] == '1' and m[9] == '0' then
    local none = 0 / 0 -- what compares with nothing
    local sold, recorded = tonumber(m[1]) or none, tonumber(m[3]) or none
    local ordinal, left, epoch = (tonumber(m[2]) or none) + 1, (tonumber(m[4]) or none) - sold - 1, tonumber(m[12]) or none
    if left > 0 and sold < ordinal and ordinal <= 9007199254740991 and recorded > 0 and epoch > 0 then
      local time = redis.call('TIME')
      local now = time[1] * 1000 + time[2] / 1000
      if now >= (tonumber(m[10]) or none) and now < (tonumber(m[11]) or none) and redis.call('HLEN', KEYS[2]) == recorded
          and not redis.call('HGET', KEYS[2], ARGV[3]) then
        local text, f = string.format, '%.0f'
        local said = text(f, ordinal)
        redis.call('HSET', KEYS[1], 'sold', sold + 1 == ordinal and said or text(f, sold + 1), 'seq', said,
          'recorded', recorded + 1 == ordinal and said or text(f, recorded + 1)) -- to write a number costs as much as a command
        redis.call('HSET', KEYS[2], ARGV[3], said .. ';' .. ARGV[1])
        return {0, epoch, left, 1, ordinal}
      end
    end
  end
end
-- libraries
local call, sure = ARGV[1], ARGV[2]
local n = #ARGV - 2
if n < 1 or n > 128 then return redis.error_reply('ERR claim takes 1 to 128 claimants') end

local wrong = begin()
if wrong == 'absent' then
  local out = {0, 0, 0}
  for i = 1, n do
    out[2 + 2 * i], out[3 + 2 * i] = 4, 0
  end
  return out
end
if wrong then return wrong end

wrong = overdue() and rare().reap(128) -- each hold gives back at least one unit: enough for the claimants of this call
if wrong then return wrong end

local before, closed = s.limit - s.sold - s.held, refusal()
local old, counts = redis.call('HMGET', s.users, unpack(ARGV, 3)), nil
if s.requests > 0 then
  local fields = {}
  for i = 1, n do fields[i] = 'u:' .. ARGV[2 + i] end
  counts = redis.call('HMGET', s.records, unpack(fields))
end

local out, set, mine, won, limited = {0, s.epoch, 0}, {}, {}, false, false
for i = 1, n do
  local user, record = ARGV[2 + i], old[i]
  local outcome, ordinal = closed, 0
  local has, by, past
  if record then
    has, by, past = record:match('^(%d+);([^;]*)(.*)$')
    if not has then return {-1, -1, 0} end
  end
  if mine[user] then -- a second time in this call
    outcome, ordinal = 2, mine[user]
  elseif record and has ~= '0' then
    ordinal, won = tonumber(has), true
    outcome, mine[user] = by == call and 1 or 2, ordinal
  elseif record and by == call then
    outcome, ordinal = 1, tonumber(past:match('^;(%d+)') or '')
    if not ordinal then return {-1, -1, 0} end
    mine[user], won = ordinal, true
  elseif closed then
    outcome = closed
  elseif s.sold + s.held >= s.limit then
    outcome = 3
  elseif counts and counts[i] and tonumber(counts[i]) >= s.per then
    outcome, limited = 7, true
  else
    if s.seq >= 9007199254740991 then return {-2, 0, 0} end
    s.sold, s.seq = s.sold + 1, s.seq + 1
    if not record then s.recorded = s.recorded + 1 end
    outcome, ordinal, mine[user] = 1, s.seq, s.seq
    set[#set + 1] = user
    set[#set + 1] = digits(s.seq) .. ';' .. call .. (past or '')
  end
  out[2 + 2 * i], out[3 + 2 * i] = outcome, ordinal
end
out[3] = s.limit - s.sold - s.held
if limited then -- perhaps by holds that are over
  wrong = rare().reap_more()
  if wrong then return wrong end
end

if #set > 0 then
  for i = 1, #set, 2 do log_entry('grant', set[i + 1]:match('^%d+'), '1', set[i], '') end
  count()
  redis.call('HSET', s.users, unpack(set))
  end_write(before)
elseif won then
  rare().touch(sure)
elseif out[3] == 0 and not closed and redis.call('EXISTS', s.flag) == 0 then
  rare().mark()
end
return out
