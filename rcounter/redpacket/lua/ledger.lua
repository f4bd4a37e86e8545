-- Reads the first entries of a red packet's ledger.
-- uses: packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  how many at most
-- ARGV[2]  '1' to write something if there are entries: the caller waits for replicas, and WAIT waits only for what its own
--          connection has written
--
-- Replies  {{0, 0, 0}, entries}          as XRANGE has them
--          {{-13, should be, found}, {}} entries are missing, or there are too many
--          {{-1, -1, 0}, {}}             numbers that cannot be
--
-- What the ledger of a packet has that lost its hash, its records or its shares is read all the same: users have money by it.
--
-- Safe to run twice: it writes nothing, or what is there already.
local m = redis.call('HMGET', packet, 'ledger', 'taken', 'state', 'moved')
local wrong = untold(m[1], tonumber(m[2]), tonumber(m[3]), m[4])
if wrong then return {wrong, {}} end
local entries = redis.call('XRANGE', ledger, '-', '+', 'COUNT', ARGV[1])
if ARGV[2] == '1' and m[1] and #entries > 0 then redis.call('HSET', packet, 'ledger', m[1]) end
return {{0, 0, 0}, entries}
