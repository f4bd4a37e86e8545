-- Gives each of some users one share of a red packet, in their order.
-- uses: clock, ends, ledger, packet
--
-- KEYS     those of packet.lua; a user's record is 'ordinal;cents;call'
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if nothing is taken and some user has a share: see touch in rare.lua of stocks
-- ARGV[3…] the users, 1 to 128
--
-- Replies  { 0, epoch, shares left, cents left, outcome, ordinal, cents, outcome, ordinal, cents …}
--          {-1, recorded, found}   records or shares are missing, or numbers that cannot be (recorded is -1)
--          {-13, should be, found} entries of the ledger are missing, or there are too many
--          outcomes: 1 granted, 2 replayed, 3 none left, 4 not there or still being sent, 6 over
--
-- The user's record is looked at first, then the window, then what is left: the user who took the last share and asks again gets
-- the same answer (testdata/scripts/grab.txt). In the other order, that user would get "none left".
--
-- Safe to run twice: the second run finds the records of the first, with the id of its own call in them.
--
-- Whatever is missing fails closed: the packet counts how many records and how many shares there must be. Everything
-- is decided before the first write, and the count is written before the share is taken: a run that is broken off in between
-- gives too little and says so, never too much (TestRedPacket_RandomCalls_AnswersAsTheModel). The entries of the ledger come before the count: if the
-- server refuses them (the user may not XADD), nothing has happened. A run that is broken off after some of them leaves more entries than
-- the packet counts, and every next call, the second run too, says so (TestPacketScripts_BrokenOff_HideNoEntry).
local call = ARGV[1]
local n = #ARGV - 2
if n < 1 or n > 128 then return redis.error_reply('ERR grab takes 1 to 128 users') end

local m = redis.call('HMGET', packet, 'n', 'total', 'taken', 'given', 'state', 'end', 'gone', 'epoch', 'ledger', 'moved')
local now, micros = clock()
if m[1] then
  for i = 1, 8 do
    m[i] = tonumber(m[i])
    if not m[i] then return {-1, -1, 0} end
  end
end
if not m[1] or m[5] == 0 or expired(m[7], now) then
  tidy(m[1] and m[7], now)
  local out = {0, 0, 0, 0}
  for i = 1, n do
    out[2 + 3 * i], out[3 + 3 * i], out[4 + 3 * i] = 4, 0, 0
  end
  return out
end
local total, taken, given, state = m[2], m[3], m[4], m[5]

local found = redis.call('HLEN', users)
if found ~= taken then return {-1, taken, found} end
local left = m[1] - taken
if left < 0 or given > total then return {-1, -1, 0} end
if state == 1 then -- after a refund no shares are kept
  local there = redis.call('LLEN', shares)
  if there ~= left then return {-1, left, there} end
end

local wrong = untold(m[9], taken, state, m[10])
if wrong then return wrong end

local over = state ~= 1 or begun(m[6], now)
local old = redis.call('HMGET', users, unpack(ARGV, 3))
local next_shares = {}
if not over and left > 0 then next_shares = redis.call('LRANGE', shares, 0, math.min(n, left) - 1) end

local out, set, mine, pops, won, lines = {0, m[8], 0, 0}, {}, {}, 0, false, {}
for i = 1, n do
  local user, outcome, ordinal, cents = ARGV[2 + i], 6, 0, 0
  if mine[user] then -- a second time in this call
    outcome, ordinal, cents = 2, mine[user][1], mine[user][2]
  elseif old[i] then
    local o, c, by = old[i]:match('^(%d+);(%d+);(.*)$')
    if not o then return {-1, -1, 0} end
    outcome, ordinal, cents, won = by == call and 1 or 2, tonumber(o), tonumber(c), true
  elseif not over and left == 0 then
    outcome = 3
  elseif not over then
    pops, left, taken = pops + 1, left - 1, taken + 1
    cents = tonumber(next_shares[pops])
    if not cents then return {-1, -1, 0} end
    outcome, ordinal, mine[user], given = 1, taken, {taken, cents}, given + cents
    set[#set + 1] = user
    set[#set + 1] = string.format('%.0f;%.0f;', taken, cents) .. call
    lines[pops] = {'k', 'grant', 'e', digits(m[8]), 'o', digits(taken), 'n', 1, 'c', user, 'm', digits(cents), 'at', digits(micros)}
  end
  out[2 + 3 * i], out[3 + 3 * i], out[4 + 3 * i] = outcome, ordinal, cents
end
if given > total or left == 0 and given ~= total then return {-1, -1, 0} end
if state == 1 then out[3], out[4] = left, total - given end

if pops > 0 then
  if m[9] == '1' then append(ledger, taken - pops, lines) end
  redis.call('HSET', packet, 'taken', digits(taken), 'given', digits(given))
  redis.call('LPOP', shares, pops)
  redis.call('HSET', users, unpack(set))
  -- All keys in one go: an end of the records before that of the packet would look like their loss.
  if redis.call('PTTL', users) < 0 or redis.call('PTTL', packet) < 0 or left > 0 and redis.call('PTTL', shares) < 0
      or m[9] == '1' and redis.call('PTTL', ledger) < 0 then
    expire(m[7] - now)
  end
elseif won and ARGV[2] == '1' then
  redis.call('HSET', packet, 'state', state)
end
return out
