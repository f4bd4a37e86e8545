-- Gives a stock another limit.
-- uses: clock, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  id of this call
-- ARGV[2]  the limit
-- ARGV[3]  the revision that this call means to change, '' to ask for it
--
-- Replies  { 0, revision, 1}    the limit is that, by this call
--          { 0, revision, 0}    the revision asked for, or another than meant: nothing changed
--          {-1, said, found}
--          {-5, sold + held, 0} more are sold and held than that: nothing changed
--          {-6, 0, 0}           no stock
--          {-12, 0, 0}          call again, see more in stock.lua
--
-- Safe to run twice: the revision counts the changes, and the hash names the call that made the last one. So a copy that comes
-- after another call's change changes nothing. It changes nothing in another opening either, whose revisions begin at its
-- epoch: the stock may have been lost and opened again since the revision was asked for
-- (TestLateCopiesOfOneOpeningChangeNothingInTheNext).
local call, want, revision = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local wrong = present({-6, 0, 0})
if wrong then return wrong end
local m = redis.call('HMGET', stock, 'revision', 'resizer')
if not tonumber(m[1]) then return {-1, -1, 0} end
if m[2] == call then return {0, tonumber(m[1]), 1} end
if revision ~= m[1] then return {0, tonumber(m[1]), 0} end
wrong = reap(128)
if wrong then return wrong end
if want < sold + held then return more() or {-5, sold + held, 0} end

local before = limit - sold - held
limit = want
redis.call('HSET', stock, 'limit', digits(want), 'revision', digits(tonumber(revision) + 1), 'resizer', call)
settle(before, records)
return {0, tonumber(revision) + 1, 1}
