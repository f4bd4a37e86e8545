-- Takes units out of a shard and writes down that they are on their way to another.
-- uses: clock, stock
--
-- KEYS     those of stock.lua; the hash is that of sharded_prepare.lua: the giver's
-- ARGV[1]  the epoch of the plan
-- ARGV[2]  the giver's incarnation by the plan: see sharded_prepare.lua
-- ARGV[3]  '1' to write something even if nothing is taken: see own in stock.lua
-- ARGV[4]  number of the shard that they go to
-- ARGV[5]  '1' to take half of what is left, at least one, if none are on their way there; '0' only to confirm those
--          that are
--
-- Replies  { 0, number, n}    n units are on their way there, by transfer number; n is 0 if none are
--          {-6, 0, 0}         there is no shard of that epoch and incarnation
--          {-1, said, found}
--
-- Safe to run twice: as long as units are on their way there, they are the answer. If they have arrived before the second run,
-- that run begins another transfer, which the next claim that looks for units completes. Units on their way are written down
-- here until they have arrived, so that they cannot be lost (TestUnitsOnTheirWayAreNotSoldOut).
local sure, to, fresh = ARGV[3], ARGV[4], ARGV[5]
local wrong = begin()
if wrong == 'absent' then return {-6, 0, 0} end
if wrong then return wrong end
local m = redis.call('HMGET', stock, 'shards', 'index', 'out:' .. to, 'inc')
if digits(epoch) ~= ARGV[1] or m[4] ~= ARGV[2] then return {-6, 0, 0} end
if not tonumber(m[1]) or tonumber(to) >= tonumber(m[1]) or m[2] == to then return {-1, -1, 0} end
local number, n = (m[3] or '0;0'):match('^(%d+);(%d+)$')
if not number then return {-1, -1, 0} end
number, n = tonumber(number), tonumber(n)
if n > 0 then
  own(sure)
  return {0, number, n}
end
if fresh ~= '1' or state ~= 1 then return {0, number, 0} end
wrong = reap(128)
if wrong then return wrong end
local before = limit - sold - held
if before <= 0 then return {0, number, 0} end

n = math.ceil(before / 2)
limit, number = limit - n, number + 1
redis.call('HSET', stock, 'limit', digits(limit), 'out:' .. to, digits(number) .. ';' .. digits(n))
settle(before)
return {0, number, n}
