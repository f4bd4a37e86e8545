-- Reserves, confirms, extends, cancels or returns a cart: units of several stocks of one slot, all or none.
-- uses: acts
--
-- KEYS     for each of at most 16 stocks the seven keys of stock.lua; no stock is there twice
-- ARGV[1]  id of this call, '+', and a digest of the names of the stocks, by which the records of a cart's lines say that they belong
--          together, in the place of the id of the call that made them
-- ARGV[2…3] as in acts.lua
-- ARGV[4]  'R' reserve, 'C' confirm, 'E' extend, 'X' cancel, 'B' return
-- ARGV[5]  id, which is that of the reservation in each stock
-- ARGV[6…] 'R': claimant, ms, and for each stock how many units. 'C': for each stock how many at most, 0 for all. 'E': ms
--
-- Replies  { 0, 0, 0, ms, then for each stock: the five numbers of acts.lua, epoch, remaining}   ms is the server's time. 'R', 'C', 'E':
--                              unless every outcome is 1 or 2, nothing was done, and the outcome is 0 where the line was not in
--                              the way. 'C': the same, but 10 is not in the way either: what is left of the others is sold; and an
--                              outcome of 11 stands, though it was not so before (confirm in acts.lua forbids an unknown id)
--          {-1, said, found, i}   the i-th stock has lost records, or has numbers that cannot be: nothing done
--          {-13, should, has, i}  its ledger has lost entries: nothing done
--          {-3, 0, 0}          the id is that of a cart of other stocks; 'R': or of a reservation by itself in one of the stocks. Nothing
--                              done
--          {-11, ms, 0}, {-12, 0, 0}   see acts.lua
--
-- A cart is its lines: nothing else is kept of it. So it is known for as long as its stocks know their lines, however often they are
-- extended and whatever becomes of the end of a sale (TestStocks_RandomCalls_AnswerAsTheModel).
--
-- Each stock decides by what acts.lua does for a call of one act, with numbers of its own: line makes a new set of functions and
-- numbers for each. So nothing that one stock decides can touch another, and whatever holds for a reservation alone holds for each
-- line: the limit, the units a claimant may have, the flag, the ledger, what is to be forgotten. All have decided before the first
-- write, but for holds that are over and records that were kept long enough, which each stock ends first, as every script does.
-- All stocks see one time. So all holds of a cart have one deadline, and none is over while another is not.
--
-- Safe to run twice: each line is, as in acts.lua. A run may be broken off between two stocks (the server is out of memory, or
-- the user lacks a right), and the next one finds some lines done and some not. It does the others, if the digest says that they belong
-- together. Until then the run that was broken off has held too much, or sold too little. A reservation by itself has no digest, and no
-- cart is made of it (TestCart_BrokenOff_IsEndedByTheNextTry).
--
-- Safe however late: as in acts.lua, a copy that arrives after the time it names does nothing.
local verb, id, mine = ARGV[4], ARGV[5], ARGV[1]:match('%+(.*)$')
local of, micro = unpack(redis.call('TIME'))
local at, us = of * 1000 + (micro - micro % 1000) / 1000, of * 1000000 + micro
if ARGV[3] == '0' or at > ARGV[3] + 0 then return {-11, at, 0} end

-- What a stock decides, what writes that, what is left if it is not written (nil: there is nothing to write), and the record it found.
local function line(KEYS, ARGV)
-- libraries
  s.now, s.micros = at, us
  local out = decide()
  return out, conclude, #todo.set > 0 and s.limit - s.stored.sold - s.stored.held or nil, todo.found[1]
end

local decided, refused, undecided, fresh, alone = {}, false, false, false, false
for i = 1, #KEYS / 7 do
  local act = {ARGV[1], ARGV[2], ARGV[3], verb, id, ARGV[3]}
  if verb == 'R' then act[7], act[8], act[9] = ARGV[6], ARGV[7 + i], ARGV[7] end
  if verb == 'C' then act[7] = ARGV[5 + i] end
  if verb == 'E' then act[7] = ARGV[6] end
  if verb == 'B' then act[7] = '0' end
  local out, write, left, record = line({unpack(KEYS, 7 * i - 6, 7 * i)}, act)
  if out[1] ~= 0 then return {out[1], out[2], out[3], i} end
  local digest = record and record:match('^%u;%d+;%d+;%d+;[^;]*%+([^;]*);')
  if digest and digest ~= mine then return {-3, 0, 0} end
  alone = alone or record and not digest
  local outcome = out[5]
  if outcome < 0 or outcome > 2 and not (verb == 'C' and outcome == 10) then
    refused, undecided = true, undecided or outcome < 0 or outcome ~= 9 and outcome ~= 11
  elseif left then
    fresh = true
  end
  decided[i] = {out, write, left}
end
if verb == 'R' and fresh and alone and not refused then return {-3, 0, 0} end
local reply = {0, 0, 0, at}
for i = 1, #decided do
  local out, write, left = unpack(decided[i], 1, 3)
  if not (refused and left) or verb == 'C' and not undecided and out[5] == 11 then
    write() -- of a line that is refused: that nothing is left, or that nothing ever will be sold under the id
  else -- as if it had not been asked
    out[3] = left
    for j = 5, #out do out[j] = 0 end
  end
  for j = 5, #out do reply[#reply + 1] = out[j] end
  reply[#reply + 1], reply[#reply + 2] = out[2], out[3]
end
return reply
