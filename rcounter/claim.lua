-- Claims one unit for each of some claimants, in their order.
--
-- KEYS[1]  the stock, a hash: limit sold seq recorded start end gone epoch state (1 open, 2 closed)
-- KEYS[2]  the claimants, a hash: claimant -> 'ordinal;call', after a return '0;call;returned;by', where by is the
--          id of the call that returned the ordinal returned; a later claim keeps that: 'ordinal;call;returned;by'
-- ARGV[1]  id of this call
-- ARGV[2…] the claimants, 1 to 128
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, outcome, ordinal …}
--          {-1, recorded, found}   records are missing, or numbers that cannot be (recorded is -1): nothing granted
--          {-2, 0, 0}              the ordinals are used up: nothing granted
--          outcomes: 1 granted, 2 replayed, 3 sold out, 4 not open, 5 not started, 6 ended
--
-- The claimant's record comes first, then the window, then what is left: were the stock asked first, the winner of
-- the last unit who asks again would be told "sold out".
--
-- Safe to run twice: the second run finds the records of the first, and by the call's id in them that they are its own.
-- If a unit was returned in between, its record still names the call that had claimed it, and that call gets its first
-- answer and nothing new; else a duplicate that comes late would claim a unit nobody knows of. (Only the last return is remembered: a duplicate so late that its
-- claimant has claimed and returned a second time meanwhile is a claim like any other.)
--
-- A missing key fails closed: no stock, no grant, nothing created; claimants' records fewer than the stock has counted,
-- no grant, because those missing have units. Everything is decided and checked before the first write, and the count
-- is written before the records: a run broken off between the two sells too little and says so, never too much.
local stock, users, call = KEYS[1], KEYS[2], ARGV[1]
local n = #ARGV - 1
if n < 1 or n > 128 then return redis.error_reply('ERR claim takes 1 to 128 claimants') end

-- all answers everybody with the same outcome.
local function all(epoch, remaining, outcome)
  local out = {0, epoch, remaining}
  for i = 1, n do
    out[2 + 2 * i], out[3 + 2 * i] = outcome, 0
  end
  return out
end

local m = redis.call('HMGET', stock, 'limit', 'sold', 'seq', 'recorded', 'start', 'end', 'gone', 'epoch', 'state')
if not m[1] then return all(0, 0, 4) end
for i = 1, 9 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0} end
end
local limit, sold, seq, recorded = m[1], m[2], m[3], m[4]
local epoch, state = m[8], m[9]

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= m[7] then return all(0, 0, 4) end -- over, and only its keys not yet removed

local found = redis.call('HLEN', users)
if found ~= recorded then return {-1, recorded, found} end
if not (sold >= 0 and sold <= limit and sold <= seq) then return {-1, -1, 0} end

local refusal
if state ~= 1 or now >= m[6] then
  refusal = 6
elseif now < m[5] then
  refusal = 5
end

local old = redis.call('HMGET', users, unpack(ARGV, 2))
local out, set, mine = {0, epoch, 0}, {}, {}
for i = 1, n do
  local user, record = ARGV[1 + i], old[i]
  local outcome, ordinal = refusal, 0
  local held, by, past
  if record then
    held, by, past = record:match('^(%d+);([^;]*)(.*)$')
    if not held then return {-1, -1, 0} end
  end
  if mine[user] then -- a second time in this call
    outcome, ordinal = 2, mine[user]
  elseif record and held ~= '0' then
    outcome, ordinal = by == call and 1 or 2, tonumber(held)
  elseif record and by == call then
    outcome, ordinal = 1, tonumber(past:match('^;(%d+)') or '')
    if not ordinal then return {-1, -1, 0} end
  elseif not refusal and sold >= limit then
    outcome = 3
  elseif not refusal then
    if seq >= 9007199254740991 then return {-2, 0, 0} end
    sold, seq = sold + 1, seq + 1
    if not record then recorded = recorded + 1 end
    outcome, ordinal, mine[user] = 1, seq, seq
    set[#set + 1] = user
    set[#set + 1] = string.format('%.0f;', seq) .. call .. (past or '')
  end
  out[2 + 2 * i], out[3 + 2 * i] = outcome, ordinal
end
out[3] = limit - sold

if #set > 0 then
  redis.call('HSET', stock, 'sold', string.format('%.0f', sold), 'seq', string.format('%.0f', seq),
    'recorded', string.format('%.0f', recorded))
  redis.call('HSET', users, unpack(set))
  -- Both keys in one go, so that they end in the same millisecond; an earlier end of the records alone would look
  -- like their loss.
  if redis.call('PTTL', users) < 0 or redis.call('PTTL', stock) < 0 then
    local left = string.format('%.0f', m[7] - now)
    redis.call('PEXPIRE', stock, left)
    redis.call('PEXPIRE', users, left)
  end
end
return out
