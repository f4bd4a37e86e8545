-- Begins an opening of a sharded stock: writes down what all its shards are to be.
-- uses: clock
--
-- KEYS[1]  the plan, a hash: shards total per ledger start end gone epoch token, and phase: 1 its shards are being made,
--          2 all are there and may sell, 3 all sell; from phase 2 on incs, their incarnations (see sharded_prepare.lua),
--          in their order, with commas in between
-- ARGV[1]  id of this call
-- ARGV[2]  number of shards
-- ARGV[3]  number of units
-- ARGV[4]  units a claimant may have
-- ARGV[5]  ms from now to the start
-- ARGV[6]  ms from the start to the end
-- ARGV[7]  ms from the end to the removal
-- ARGV[8]  '1' if the shards keep ledgers
-- ARGV[9]  the server's ms until which this call may begin, '' only to ask
--
-- Replies  { 0, epoch, phase, shards, total, per, ledger, ms to the start, ms to the end, ms to the removal, 1, incs}
--                          begun, by this call; incs is '' in phase 1
--          { 0, …, 0, incs}  there is one, of another call: nothing changed
--          {-1, -1, 0}     a hash that is no plan
--          {-11, ms, 0}    there is none, and it was only asked for or is too late: see open.lua
--
-- Safe to run twice: the first run leaves its call's id in the hash, by which the second knows its own work.
local plan, token = KEYS[1], ARGV[1]
local now, micros = clock()
local names = {'epoch', 'phase', 'shards', 'total', 'per', 'ledger', 'start', 'end', 'gone'}

local m = redis.call('HMGET', plan, unpack(names))
if m[1] or redis.call('EXISTS', plan) == 1 then
  for i = 1, 9 do
    m[i] = tonumber(m[i])
    if not m[i] then return {-1, -1, 0} end
  end
  if now < m[9] then
    local x = redis.call('HMGET', plan, 'token', 'incs')
    return {0, m[1], m[2], m[3], m[4], m[5], m[6], m[7] - now, m[8] - now, m[9] - now, x[1] == token and 1 or 0, x[2] or ''}
  end
end
if ARGV[9] == '' or now > tonumber(ARGV[9]) then return {-11, now, 0} end
if m[1] then redis.call('DEL', plan) end -- it is over, and stands without an expiry

local epoch = micros
local start = now + tonumber(ARGV[5])
local ending = start + tonumber(ARGV[6])
local gone = ending + tonumber(ARGV[7])
redis.call('HSET', plan, 'epoch', digits(epoch), 'phase', 1, 'shards', ARGV[2], 'total', ARGV[3], 'per', ARGV[4], 'ledger', ARGV[8],
  'start', digits(start), 'end', digits(ending), 'gone', digits(gone), 'token', token)
redis.call('PEXPIRE', plan, digits(gone - now))
return {0, epoch, 1, tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[8]), start - now, ending - now, gone - now, 1, ''}
