-- Reads the records of requests or reservations.
-- uses: state, stock
--
-- KEYS     those of stock.lua
-- ARGV[1…] the ids, 1 to 128; '' for none
--
-- Replies  {0, epoch, ms, record, record …}   as in stock.lua, '' if there is none, '-' if it may be lost: the stock is suspended;
--                                  ms is the server's time
--          {-6, 0, 0}              no stock
--          {-1, said, found}       records are missing, these perhaps, or numbers that cannot be
--
-- Safe to run twice: it writes nothing, but that begin removes what is over.
local wrong = present({-6, 0, 0})
if wrong then return wrong end
local fields = {}
for i = 1, #ARGV do fields[i] = 'r:' .. ARGV[i] end
local reply = redis.call('HMGET', s.records, unpack(fields))
for i = 1, #ARGV do reply[i] = ARGV[i] ~= '' and (reply[i] or is_suspended() and '-') or '' end
return {0, s.epoch, s.now, unpack(reply)}
