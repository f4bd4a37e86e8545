-- Gives each of some users one share of a red packet, in their order.
-- uses: clock, ends, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  '1' to write something even if nothing is taken and some user has a share: the caller waits for replicas, and WAIT waits only
--          for what its own connection has written
-- ARGV[2…] the users, 1 to 128
--
-- Replies  {0, epoch, 0, shares left, cents left, code, ordinal, cents, code, ordinal, cents …}
--          {-1, said, found} {-6, 0, 0} {-10, 0, 0} {-13, said, found}   see begin in packet.lua
--          codes: 0 the user has a share by this call, 1 had it before, 3 none is left, 6 the packet is over
--
-- The user's record is looked at first, then the window, then what is left: the user who took the last share and asks again gets
-- the same answer (testdata/scripts/grab.txt). In the other order, that user would get "none left".
--
-- Safe to run twice: the second run finds the records of the first.
--
-- Everything is decided before the first write. A run that is broken off gives too little and the next call says so, never too much
-- (TestPacketScripts_BrokenOff_HideNoEntry):
--
--   1 entries: if the server refuses them (the user may not XADD), nothing has happened. Otherwise the next call finds more than the hash
--     says (-13)
--   2 numbers: the next call finds a user less than the hash says (-1)
--   3 shares, 4 users: the same
local n = #ARGV - 1
if n < 1 or n > 128 then return redis.error_reply('ERR grab takes 1 to 128 users') end
local wrong = begin()
if wrong then return wrong end

local over = p.state ~= 1 or begun(p['end'], p.now)
local records = redis.call('HMGET', users, unpack(ARGV, 2))
local next_shares = {}
if not over and p.left > 0 then next_shares = redis.call('LRANGE', shares, 0, math.min(n, p.left) - 1) end

local out, set, grabs, mine, won = {}, {}, {}, {}, false
for i = 1, n do
  local user, code, ordinal, cents = ARGV[1 + i], 6, 0, 0
  local record = records[i] or mine[user] -- or a second time in this call
  if record then
    ordinal, cents = record:match('^(%d+);(%d+)$')
    if not ordinal then return {-1, -1, 0} end
    code, ordinal, cents, won = 1, ordinal + 0, cents + 0, true
  elseif not over and p.left == 0 then
    code = 3
  elseif not over then
    cents = tonumber(next_shares[#grabs + 1])
    if not cents then return {-1, -1, 0} end
    p.taken, p.given, p.left, p.rest = p.taken + 1, p.given + cents, p.left - 1, p.rest - cents
    code, ordinal, mine[user] = 0, p.taken, digits(p.taken) .. ';' .. digits(cents)
    grabs[#grabs + 1] = {ordinal, user, cents}
    set[#set + 1] = user
    set[#set + 1] = mine[user]
  end
  out[3 * i - 2], out[3 * i - 1], out[3 * i] = code, ordinal, cents
end
if p.rest < 0 or p.left == 0 and p.rest ~= 0 then return {-1, -1, 0} end

if #grabs > 0 then
  for _, grab in ipairs(grabs) do log('grabbed', grab[1], 1, grab[2], grab[3]) end
  redis.call('HSET', packet, 'taken', digits(p.taken), 'given', digits(p.given), 'serial', digits(p.serial))
  redis.call('LPOP', shares, #grabs)
  redis.call('HSET', users, unpack(set))
  mend_ends()
elseif won and ARGV[1] == '1' then
  redis.call('HSET', packet, 'state', p.state)
end
if p.state ~= 1 then p.left, p.rest = 0, 0 end -- the rest is the sender's
return {0, p.epoch, 0, p.left, p.rest, unpack(out)}
