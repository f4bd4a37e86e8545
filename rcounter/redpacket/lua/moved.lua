-- Removes the first entries of a red packet's ledger, which a database has.
-- uses: ledger, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  the id of the last of these entries
-- ARGV[2…] the values of that entry's fields, in their order
--
-- Replies  {0, n, 0}   n entries were removed, by this call
--
-- Safe to run twice, and at the same time as other movers: what was removed is not there a second time, and only what was removed is counted.
--
-- It removes no entry that its caller has not read: the last of them must still be the one that was read. A failover to a replica that
-- has not heard of it gives its number to another (moved.lua of package stock has more).
--
-- The removal comes before the count, so that nothing has happened if the server refuses it. If the run is broken off between the two,
-- the next call says that entries are missing, although none is lost.
if not is_unchanged(ledger) then return {0, 0, 0} end
return {0, shorten(ledger, packet, redis.call('HGET', packet, 'ledger')), 0}
