-- Reads the records of a cart's lines, all at one time.
-- uses: state, stock
--
-- KEYS     for each of at most 16 stocks the seven keys of stock.lua
-- ARGV[1]  id of the cart
--
-- Replies  {0, ms, 0, epoch, record, epoch, record …}   for each stock; '': no record; '-': it may be lost, as in find.lua; ms is the
--                                  server's time
--          {-6, 0, 0, i}   the i-th stock is not there
--          {-1, said, found, i}, {-13, should, has, i}   it has lost records, or entries of its ledger
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local of, micro = unpack(redis.call('TIME'))
local at, us = of * 1000 + (micro - micro % 1000) / 1000, of * 1000000 + micro

local function line(KEYS)
-- libraries
  s.now, s.micros = at, us
  local wrong = present({-6, 0, 0})
  if wrong then return wrong end
  return {0, s.epoch, redis.call('HGET', s.records, 'r:' .. ARGV[1]) or is_suspended() and '-' or ''}
end

local reply = {0, at, 0}
for i = 1, #KEYS / 7 do
  local out = line({unpack(KEYS, 7 * i - 6, 7 * i)})
  if out[1] ~= 0 then return {out[1], out[2], out[3], i} end
  reply[2 * i + 2], reply[2 * i + 3] = out[2], out[3]
end
return reply
