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
-- ARGV[9]  '1' for a packet with a ledger
-- ARGV[10…] the shares of this part, in cents
--
-- Replies  { 0, epoch}         stored; epoch is 0 until the packet is open
--          { 1, 0}             another sending is under way
--          { 2, epoch}         it is there, by another sending
--          { 3, stored}        the parts before this one are not all there: too long ago, or lost
--          { 4, ms}            the server's time: asked for, or too late: nothing changed
--          {-1, recorded, n}   records or shares are there and no packet, or the numbers are impossible
--
-- Safe to run twice: a part that is stored already changes nothing. Nothing can be taken before the last part is there,
-- and a sending that was broken off vanishes by itself. Safe however late (TestSend_LateCopy_OpensNothing): a packet that was
-- opened and lost with all that it had looks like one that never was, and a copy that arrives long after its call must not send it
-- again. A late copy of a later part does not send it either: if its packet is over, the part finds no hash and stores nothing (3).
-- If another sending has begun, it finds the token of that sending (1, 2).
local token, n, total, first = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[7])
local parts = #ARGV - 9

local now, micros = clock()
if ARGV[8] == '' then return {4, now} end

local m = redis.call('HMGET', packet, 'token', 'state', 'gone', 'epoch', 'sum')
if not m[1] and redis.call('EXISTS', packet) == 1 then return {-1, -1, 0} end -- a hash that is no packet
if m[1] then
  local state, gone, epoch, sum = tonumber(m[2]), tonumber(m[3]), tonumber(m[4]), tonumber(m[5])
  if not (state and gone and epoch and sum) then return {-1, -1, 0} end
  if expired(gone, now) then -- over, and only its keys not yet removed
    remove()
    m[1] = false
  elseif m[1] ~= token then
    if state == 0 then return {1, 0} end
    return {2, epoch}
  elseif state ~= 0 then
    redis.call('HSET', packet, 'token', token) -- see touch in rare.lua of stocks
    return {0, epoch}
  end
end
local stored, sum = redis.call('LLEN', shares), tonumber(m[5] or '0')
if not m[1] then
  -- What a packet leaves behind that is over, or a sending that was broken off, is removed. Records that have more time to live
  -- belong to a packet whose hash was lost: its users have money by it
  -- (TestPacket_LeftoverKeys_AreRemovedExceptAfterALoss).
  local found = orphaned_records()
  if found > 0 then return {-1, 0, found} end
  if first > 0 then return {3, 0} end
  if expired(ARGV[8], now) then return {4, now} end
  stored, sum = 0, 0
end
if stored >= first + parts then return {0, 0} end
if stored ~= first then return {3, stored} end

for i = 10, #ARGV do
  sum = sum + tonumber(ARGV[i])
end
local done = first + parts == n
if first + parts > n or done and digits(sum) ~= total then return {-1, -1, 0} end

local keep, gone, epoch = tonumber(ARGV[6]), 0, 0
if done then
  keep = tonumber(ARGV[4]) + tonumber(ARGV[5])
  epoch = micros
end
gone = now + keep
redis.call('HSET', packet, 'n', ARGV[2], 'total', total, 'sum', digits(sum), 'taken', 0, 'given', 0,
  'state', done and 1 or 0, 'end', digits(now + tonumber(ARGV[4])), 'gone', digits(gone),
  'epoch', digits(epoch), 'token', token)
if ARGV[9] == '1' then redis.call('HSET', packet, 'ledger', 1, 'moved', 0) end
local stands = redis.pcall('RPUSH', shares, unpack(ARGV, 10))
if type(stands) == 'number' then stands = redis.pcall('PEXPIRE', packet, digits(keep)) end
if type(stands) == 'table' then -- no right: without its shares or its end the packet would keep the name for ever
  if first == 0 then remove() end
  return stands
end
expire(keep)
return {0, epoch}
