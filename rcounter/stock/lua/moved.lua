-- Removes the first entries of a stock's ledger, which a database has.
-- uses: ledger, state
--
-- KEYS     those of stock.lua
-- ARGV[1]  the id of the last of these entries
-- ARGV[2…] the fields of that entry, in their order, without their names
--
-- Replies  {0, n, 0}   n entries were removed, by this call
--
-- Safe to run twice, and at the same time as other movers: what was removed is not there a second time, and only what was removed is counted.
--
-- It removes no entry that its caller has not read. The caller has read all up to the last one, and every entry is written after
-- those before it. But a failover to a replica that has not heard of the last entries sets the stream back, and other entries get
-- their numbers. So the last entry must still be the one that was read, and then those before it are, too: a history that has this
-- entry has all that came before it (TestMover_EntryReplaced_RemovesNothing). If the stock was lost and
-- opened again, the entry names another epoch.
--
-- The removal comes before the count. If the run is broken off between the two, the stream has fewer entries than the hash says, and
-- the next call says so, although none is lost. If the count came first and the server refused the removal (the user may not XTRIM),
-- the hash would be wrong; like this, nothing has happened.
if not is_unchanged(s.ledger) then return {0, 0, 0} end
local m = redis.call('HMGET', s.stock, 'ledger', 'serial')
if m[2] == '-1' then return {0, 0, 0} end -- Restore writes it anew, and this entry again
return {0, shorten(s.ledger, s.stock, m[1]), 0}
