-- Stores one part of a red packet's shares; the part that completes them opens the packet.
-- uses: clock, ends, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  id of this sending, the same for all its parts
-- ARGV[2]  number of shares
-- ARGV[3]  total in cents
-- ARGV[4]  ms from the opening to the end
-- ARGV[5]  ms from the end to the removal of the keys
-- ARGV[6]  ms that an unfinished sending is kept after its last part
-- ARGV[7]  number of shares in the parts before this one
-- ARGV[8]  the server's ms until which the first part may begin a packet; '' only to ask for the server's time, with no shares
-- ARGV[9]  1 for a packet with a ledger
-- ARGV[10…] the shares of this part, in cents
--
-- Replies  {0, epoch, 0}       stored; epoch is 0 until the packet is open
--          {2, epoch, 0}       it is there, by another sending
--          {3, stored, 0}      the parts before this one are not all there: too long ago, or lost
--          {5, ms, 0}          the server's time: asked for, or too late: nothing changed
--          {-10, 0, 0}         another sending is under way
--          {-1, said, found} {-13, said, found}   see begin in packet.lua
--
-- Safe to run twice: a part that is stored already changes nothing. Nothing can be taken before the last part is there,
-- and a sending that was broken off vanishes by itself. Safe however late (TestSend_LateCopy_OpensNothing): a packet that was
-- opened and lost with all that it had looks like one that never was, and a copy that arrives long after its call must not send it
-- again. A late copy of a later part does not send it either: if its packet is over, the part finds no hash and stores nothing (3).
-- If another sending has begun, it finds the token of that sending (-10, 2).
local token, n, total, first, parts = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[7]), #ARGV - 9
local wrong = begin()
if ARGV[8] == '' then return {5, p.now, 0} end
local code = wrong and wrong[1] or 0
if code ~= 0 and code ~= -6 and code ~= -10 then return wrong end
local sent = redis.call('HMGET', packet, 'token', 'sum')
if code ~= -6 and sent[1] ~= token then return wrong or {2, p.epoch, 0} end
if code == 0 then
  redis.call('HSET', packet, 'token', token) -- for replicas, see grab.lua
  return {0, p.epoch, 0}
end
local stored, sum = 0, 0
if code == -10 then
  stored, sum = redis.call('LLEN', shares), tonumber(sent[2]) or 0
elseif first > 0 then
  return {3, 0, 0}
elseif expired(ARGV[8], p.now) then
  return {5, p.now, 0}
end
if stored >= first + parts then return {0, 0, 0} end
if stored ~= first then return {3, stored, 0} end

for i = 10, #ARGV do
  sum = sum + tonumber(ARGV[i])
end
local done = first + parts == n
if first + parts > n or done and digits(sum) ~= total then return {-1, -1, 0} end

local keep, epoch = done and ARGV[4] + ARGV[5] or ARGV[6] + 0, done and p.micros or 0
redis.call('HSET', packet, 'n', ARGV[2], 'total', total, 'sum', digits(sum), 'taken', 0, 'given', 0, 'state', done and 1 or 0,
  'end', digits(p.now + ARGV[4]), 'gone', digits(p.now + keep), 'epoch', digits(epoch), 'token', token,
  'ledger', ARGV[9], 'serial', 0, 'moved', 0)
local stands = redis.pcall('RPUSH', shares, unpack(ARGV, 10))
if type(stands) == 'number' then stands = redis.pcall('PEXPIRE', packet, digits(keep)) end
if type(stands) == 'table' then -- no right: without its shares or its end the packet would keep the name for ever
  if first == 0 then remove() end
  return stands
end
expire(keep)
return {0, epoch, 0}
