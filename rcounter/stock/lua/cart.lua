-- Reserves, confirms or cancels a cart: units of several stocks of one slot, all or none.
-- uses: acts
--
-- KEYS[1]  the cart, a string: the names of its stocks, as the client wrote them; '' if it was cancelled before it was made. It only
--          tells a process that knows the id which stocks to name, and never decides how many units anybody has: the stocks'
--          records do. If it is missing, whoever names the stocks can still confirm and cancel
-- KEYS[2…] for each of at most 16 stocks the seven keys of stock.lua; no stock is there twice
-- ARGV[1…3] those of acts.lua
-- ARGV[4]  'R' reserve, 'C' confirm, 'X' cancel
-- ARGV[5]  id, which is that of the reservation in each stock
-- ARGV[6]  the names of the stocks
-- ARGV[7…] 'R': claimant, ms, and for each stock how many units. 'C': for each stock how many at most, 0 for all
--
-- Replies  { 0, 0, 0, ms, then for each stock: the five numbers of acts.lua, epoch, remaining}   ms is the server's time. 'R',
--                              unless every outcome is 1 or 2, nothing was done, and the outcome is 0 where the line was not in
--                              the way. 'C': the same, but 10 is not in the way either: what is left of the others is sold; and an
--                              outcome of 11 stands, though it was not so before (confirm in acts.lua forbids an unknown id)
--                              All outcomes are 11 if the cart was cancelled before it was made
--          {-1, said, found, i}   the i-th stock has lost records, or has numbers that cannot be: nothing done
--          {-13, should, has, i}  its ledger has lost entries: nothing done
--          {-3, 0, 0}          'R': the id is that of another cart, or of a reservation in one of the stocks. Others: the cart has
--                              other stocks. Nothing done
--          {-11, ms, 0}, {-12, 0, 0}   see acts.lua
--          {-14, 0, 0}         'X' without stocks: the cart is there, and has stocks: nothing done
--
-- Each stock decides by what acts.lua does for a call of one act, with numbers of its own: line makes a new set of functions and
-- numbers for each. So nothing that one stock decides can touch another, and whatever holds for a reservation alone holds for each
-- line: the limit, the units a claimant may have, the flag, the ledger, what is to be forgotten. All have decided before the first
-- write, but for holds that are over and records that were kept long enough, which each stock ends first, as every script does.
-- All stocks see one time. So all holds of a cart have one deadline, and none is over while another is not.
--
-- Safe to run twice: each line is, as in acts.lua. A run may be broken off between two stocks (the server is out of memory, or
-- the user lacks a right), and the next one finds some lines done and some not. It does the others, if the cart says that they belong
-- together, so the cart is written first. Until then the run that was broken off has held too much, or sold too little. Without
-- the cart, an id that is in some of the stocks only is refused: it may be the id of a reservation by itself
-- (TestACartThatIsBrokenOffSellsNothingTwiceAndIsCompletedByTheNextTry).
--
-- Safe however late: as in acts.lua, a copy that arrives after the time it names does nothing.
local cart, verb, id, what = KEYS[1], ARGV[4], ARGV[5], ARGV[6]
local of, micro = unpack(redis.call('TIME'))
local at, us, text, f = of * 1000 + (micro - micro % 1000) / 1000, of * 1000000 + micro, string.format, '%.0f'
if ARGV[3] == '0' or at > ARGV[3] + 0 then return {-11, at, 0} end

local is = redis.call('GET', cart)
if is == '' and verb ~= 'X' then
  local reply = {0, 0, 0, at}
  for i = 1, #KEYS - 1 do reply[4 + i] = i % 7 == 1 and 11 or 0 end -- as many numbers as keys
  return reply
end
if is and is ~= '' and is ~= what then return {what == '' and -14 or -3, 0, 0} end
if what == '' then -- only of a cart that is not there, and never will be
  redis.call('SET', cart, '', 'PX', 3600000)
  return {0, 0, 0, at}
end

-- What a stock decides, what writes that, what is left if it is not written (nil: there is nothing to write), for how many ms what ends
-- now is remembered, and for how many what is sold.
local function line(KEYS, ARGV)
-- libraries
  now, micros = at, us
  local out = decide()
  return out, conclude, #set > 0 and was[6] or nil, remember or 3600000, gone and gone - now or 0
end

local decided, refused, undecided, fresh, old, keep = {}, false, false, 0, 0, 0
for i = 1, (#KEYS - 1) / 7 do
  local act = {ARGV[1], ARGV[2], ARGV[3], verb, id, ARGV[3]}
  if verb == 'R' then act[7], act[8], act[9] = ARGV[7], ARGV[8 + i], ARGV[8] end
  if verb == 'C' then act[7] = ARGV[6 + i] end
  local out, write, left, ended, sells = line({unpack(KEYS, 7 * i - 5, 7 * i + 1)}, act)
  if out[1] ~= 0 then return {out[1], out[2], out[3], i} end
  local outcome = out[5]
  if outcome < 0 or outcome > 2 and not (verb == 'C' and outcome == 10) then
    refused, undecided = true, undecided or outcome < 0 or outcome ~= 9 and outcome ~= 11
  elseif left then
    fresh = fresh + 1
  else
    old = old + 1
  end
  keep = math.max(keep, verb == 'C' and sells or ended)
  decided[i] = {out, write, left}
end
if fresh > 0 and not refused then
  if verb == 'R' then
    if old > 0 and is ~= what then return {-3, 0, 0} end
    redis.call('SET', cart, what, 'PX', text(f, ARGV[8] + keep))
  elseif is then
    redis.call('PEXPIRE', cart, text(f, keep))
  end
end
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
