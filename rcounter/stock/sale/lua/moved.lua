-- Removes the first entries of a ledger, which a database has.
-- uses: ledger
--
-- KEYS     those of sale.lua
-- ARGV[1]  the id of the last of these entries
-- ARGV[2…] the fields of that entry, in their order, without their names
--
-- Replies  {0, n, 0}   n entries were removed, by this call
--
-- Safe to run twice, and beside other movers: what was removed is not there a second time, and only what was removed is counted.
--
-- It removes no entry that its caller has not read. A failover to a replica that has not heard of the last entries sets the stream back,
-- and other entries get their numbers. So the last entry must still be the one that was read, and then those before it are, too. If the sale
-- was lost and opened or restored again, the entry names another epoch.
--
-- The removal comes before the count. If the run is broken off between the two, the stream has fewer entries than the hash says, and
-- the next call says so, although none is lost: Restore mends it.
if not is_unchanged(KEYS[5]) then return {0, 0, 0} end
return {0, shorten(KEYS[5], KEYS[1], redis.call('HGET', KEYS[1], 'ledger')), 0}
