-- Reads what a claimant has.
-- uses: state, stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  the claimant
--
-- Replies  {0, epoch, remaining, ordinal}   ordinal 0: none
--          {-6, 0, 0}                       no stock
--          {-10, 0, 0}                      none, but the stock is suspended: the record may be lost
--          {-1, said, found}                records are missing, this claimant's perhaps, or numbers that cannot be
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local wrong = present({-6, 0, 0})
if wrong then return wrong end

local record, ordinal = redis.call('HGET', s.users, ARGV[1]), 0
if record then
  ordinal = tonumber(record:match('^(%d+);') or '')
  if not ordinal then return {-1, -1, 0} end
end
if ordinal == 0 and is_suspended() then return {-10, 0, 0} end
return {0, s.epoch, s.limit - s.sold - s.held, ordinal}
