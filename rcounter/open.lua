-- Opens a stock. Nothing else ever creates its hash.
--
-- KEYS[1]  the stock, a hash: limit sold seq recorded per start end gone epoch state token
-- KEYS[2]  the claimants, a hash: claimant -> record (see claim.lua)
-- ARGV[1]  id of this call
-- ARGV[2]  limit
-- ARGV[3]  units a claimant may have: 1
-- ARGV[4]  ms from now to the start
-- ARGV[5]  ms from the start to the end
-- ARGV[6]  ms from the end to the removal of both keys
--
-- Replies  { 0, epoch, 1}      opened, by this call
--          { 0, epoch, 0}      it is there, opened by another call: nothing changed
--          {-1, recorded, n}   claimants' records are there and no stock (recorded is 0), or a hash that is no stock
--                              (recorded is -1): nothing changed
--
-- Safe to run twice: the first run leaves its call's id in the hash, by which the second knows its own work.
--
-- All times kept are the server's own, in ms; only differences come in. The epoch is the server's time in us: it
-- differs for every opening of a name. Real Redis prints a double of 15 digits and more as 1e+15, so numbers are
-- formatted by hand.
local stock, users = KEYS[1], KEYS[2]
local token, limit, per = ARGV[1], ARGV[2], ARGV[3]
local start_in, open_for, retain = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local m = redis.call('HMGET', stock, 'token', 'epoch', 'gone')
local there = redis.call('EXISTS', stock) == 1
if there then
  local epoch, gone = tonumber(m[2]), tonumber(m[3])
  if not epoch or not gone then return {-1, -1, 0} end
  if now < gone then
    if m[1] == token then return {0, epoch, 1} end
    return {0, epoch, 0}
  end
end

-- The claimants' hash without the stock's: a sale was under way and has lost its half. Its claimants have units;
-- opening over them would sell those again.
local found = redis.call('HLEN', users)
if found > 0 and not there then return {-1, 0, found} end

if there then redis.call('DEL', stock, users) end -- over, and not yet removed: somebody took the expiry off
local epoch = t[1] * 1000000 + t[2]
local start = now + start_in
local gone = start + open_for + retain
redis.call('HSET', stock, 'limit', limit, 'sold', 0, 'seq', 0, 'recorded', 0, 'per', per,
  'start', string.format('%.0f', start), 'end', string.format('%.0f', start + open_for),
  'gone', string.format('%.0f', gone), 'epoch', string.format('%.0f', epoch), 'state', 1, 'token', token)
redis.call('PEXPIRE', stock, string.format('%.0f', gone - now))
return {0, epoch, 1}
