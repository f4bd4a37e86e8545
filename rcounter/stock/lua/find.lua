-- Reads the record of a request or reservation.
-- uses: stock
--
-- KEYS     those of stock.lua
-- ARGV[1]  the id, '' for none
--
-- Replies  {0, epoch, ms, record}   as in stock.lua, '' if there is none; ms is the server's time. epoch 0: no stock
--          {-1, said, found}        records are missing, this one perhaps, or numbers that cannot be
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local wrong = present({0, 0, 0, ''})
if wrong then return wrong end
return {0, epoch, now, ARGV[1] ~= '' and redis.call('HGET', records, 'r:' .. ARGV[1]) or ''}
