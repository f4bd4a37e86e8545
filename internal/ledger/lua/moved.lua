-- Removes the first entries of a ledger, which a database has.
-- uses: clock
--
-- KEYS     those of read.lua
-- ARGV[1]  the id of the last of these entries
-- ARGV[2…] the fields of that entry, in their order, without their names
--
-- Replies  {0, n, 0}   n entries were removed, by this call
--
-- Safe to run twice, and beside other movers: an entry that was removed is not there a second time, and only removed
-- entries are counted.
--
-- It removes no entry that its caller has not read. A failover to a replica that has not heard of the last entries
-- sets the stream back, and other entries get their numbers. So the last entry must still be the entry that was read,
-- and then the entries before it are, too. If the object was lost and made again, or a sale restored, the entry names
-- another epoch:
--
--   this mover                        the server
--   reads 1 to 7, writes them
--                                     a replica with 1 to 5 is promoted; two more users win: 6 and 7
--   moved: 7 is another entry         removes nothing. The next reading brings 6 and 7 to the database, which has
--                                     others under these numbers and says so
--
-- The removal comes before the count. If the run is broken off between the two, the stream has fewer entries than the
-- hash says, and every next call says so, although none is lost.
local last = redis.call('XRANGE', KEYS[2], ARGV[1], ARGV[1])[1]
if not last then return {0, 0, 0} end
for i = 2, #ARGV do
  if last[2][2 * i - 2] ~= ARGV[i] then return {0, 0, 0} end
end
local counts = redis.call('HGET', KEYS[1], 'ledger') == '1'
local n = redis.call('XTRIM', KEYS[2], 'MINID', digits(ARGV[1]:match('^%d+') + 1))
if counts then redis.call('HINCRBY', KEYS[1], 'moved', digits(n)) end
return {0, n, 0}
