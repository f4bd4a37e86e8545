-- Claims up to n units without a claimant, for one claim or for all claims that share a call.
-- uses: stock
--
-- KEYS     those of stock.lua. The record in KEYS[3] is 'ordinal;n' and ';from.n.call' for each part returned; '0;0;call' is a
--          call that was given up before it ran
-- ARGV[1]  id of this call, and of the record
-- ARGV[2]  '1' to write something even if nothing is granted: see touch in rare.lua
-- ARGV[3]  n, a decimal from 1
--
-- Replies  { 0, epoch, remaining, outcome, ordinal, n}   units ordinal to ordinal + n - 1
--          {-1, said, found}                             as in claim.lua
--          {-2, 0, 0}                                    the ordinals are used up: nothing granted
--          {-12, 0, 0}                                   call again, see reap_more in rare.lua: nothing granted
--          outcomes: as in claim.lua, and 9: given up, or all of it returned
--
-- Safe to run twice: the second run finds the record of the first. Safe however late: if the caller has given the call up, the
-- record says so (TestClaimAny_GivenUp_NeverRuns).
local id, sure, n = ARGV[1], ARGV[2], tonumber(ARGV[3])

local wrong = ready({0, 0, 0, 4, 0, 0})
if wrong then return wrong end

return replay(id, sure) or sell(id, n)
