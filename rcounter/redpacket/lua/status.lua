-- Reads the state of a red packet, and one page of its users and their shares.
-- uses: clock, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  where the page begins, an HSCAN cursor; '' for no page
-- ARGV[2]  about how many records a page has
--
-- Replies  {{state, epoch, n, total, taken, given, refund, ms to the end, ms to the removal, missing, should be, found}, cursor, {user, record …}}
--          state: 0 being sent, 1 open, 2 refunded, 3 absent, 4 ended and not refunded, -1 numbers that cannot be
--          missing: 1 if records or shares are, 2 if the ledger has not the entries that it should have
--
-- Safe to run twice: it writes nothing, but removes what is over.
local from = ARGV[1]
local nothing = {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

local m = redis.call('HMGET', packet, 'n', 'total', 'taken', 'given', 'state', 'end', 'gone', 'epoch', 'refund', 'ledger', 'moved')
if not m[1] then
  tidy()
  return {nothing, '0', {}}
end
for i = 1, 8 do
  m[i] = tonumber(m[i])
  if not m[i] then return {{-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, '0', {}} end
end
local refund = tonumber(m[9] or '0')
if not refund then return {{-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, '0', {}} end
local now = clock()
if expired(m[7], now) then
  tidy(m[7], now)
  return {nothing, '0', {}}
end

local state, missing = m[5], 0
if state ~= 0 and redis.call('HLEN', users) ~= m[3] then missing = 1 end
if state == 1 and redis.call('LLEN', shares) ~= m[1] - m[3] then missing = 1 end
local wrong = untold(m[10], m[3], state, m[11])
if wrong and wrong[1] == -1 then return {{-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, '0', {}} end
if wrong and missing == 0 then missing = 2 end
wrong = wrong or {0, 0, 0}
if state == 1 and begun(m[6], now) then state = 4 end

local page = {'0', {}}
if from ~= '' then page = redis.call('HSCAN', users, from, 'COUNT', ARGV[2]) end
return {{state, m[8], m[1], m[2], m[3], m[4], refund, m[6] - now, m[7] - now, missing, wrong[2], wrong[3]}, page[1], page[2]}
