-- Takes what is left of a red packet whose time is over back to its sender.
-- uses: clock, ends, ledger, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  id of this call
-- ARGV[2]  '1' to write something even if it was refunded before: see touch in rare.lua of stocks
--
-- Replies  { 0, epoch, cents, shares, 1}   refunded, by this call
--          { 0, epoch, cents, shares, 0}   refunded before, by another
--          { 1, epoch, ms to the end, 0, 0}
--          { 2, 0, 0, 0, 0}                there is none, or it is still being sent
--          {-1, recorded, found}           records or shares are missing, or numbers that cannot be: nothing refunded
--          {-13, should be, found}         entries of the ledger are missing, or there are too many: nothing refunded
--
-- Safe to run twice: the packet says what was refunded and by which call. What is refunded cannot be taken any more:
-- the state forbids it, and the shares are gone. The entry of the ledger comes first, as in grab.lua. If a user lacks the right to remove
-- the shares, the next run removes them.
local call = ARGV[1]

local m = redis.call('HMGET', packet, 'n', 'total', 'taken', 'given', 'state', 'end', 'gone', 'epoch', 'refund', 'by', 'ledger', 'moved')
if not m[1] then
  tidy()
  return {2, 0, 0, 0, 0}
end
for i = 1, 8 do
  m[i] = tonumber(m[i])
  if not m[i] then return {-1, -1, 0} end
end
local now, micros = clock()
local left, cents, state = m[1] - m[3], m[2] - m[4], m[5]
if state == 0 or expired(m[7], now) then
  tidy(m[7], now)
  return {2, 0, 0, 0, 0}
end
local wrong = untold(m[11], m[3], state, m[12])
if wrong then return wrong end
if state == 2 then
  local refund = tonumber(m[9])
  if not refund then return {-1, -1, 0} end
  redis.call('UNLINK', shares)
  if ARGV[2] == '1' then redis.call('HSET', packet, 'state', 2) end
  return {0, m[8], refund, left, m[10] == call and 1 or 0}
end
if not begun(m[6], now) then return {1, m[8], m[6] - now, 0, 0} end

local found = redis.call('HLEN', users)
if found ~= m[3] then return {-1, m[3], found} end
local there = redis.call('LLEN', shares)
if there ~= left then return {-1, left, there} end
if cents < 0 or left == 0 and cents ~= 0 then return {-1, -1, 0} end

if m[11] == '1' then
  append(ledger, m[3], {{'k', 'refund', 'e', digits(m[8]), 'o', 0, 'n', digits(left), 'c', '', 'm', digits(cents), 'at', digits(micros)}})
end
redis.call('HSET', packet, 'state', 2, 'refund', digits(cents), 'by', call)
redis.call('UNLINK', shares)
if redis.call('PTTL', packet) < 0 or m[11] == '1' and redis.call('PTTL', ledger) < 0 then expire(m[7] - now) end
return {0, m[8], cents, left, 1}
