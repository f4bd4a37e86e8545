-- Reads the first entries of a ledger.
-- uses: integer
--
-- KEYS[1]  the hash of the object. It has ledger (1: the object keeps a ledger), serial (number of the last entry),
--          moved (how many entries were removed, because a database has them) and state (3: suspended)
-- KEYS[2]  the stream: entries 1-0, 2-0, ...
-- ARGV[1]  how many at most
-- ARGV[2]  '1' to write something if there are entries: the caller waits for replicas, and WAIT waits only for writes
--          of its own connection
--
-- Replies  {{0, 0, 0}, entries}          as XRANGE has them
--          {{-6, 0, 0}, {}}              there is no object, and no entry
--          {{-10, 0, 0}, {}}             suspended
--          {{-13, should be, found}, {}} entries are missing, or there are too many
--          {{-1, -1, 0}, {}}             numbers that cannot be
--
-- The ledger of an object that lost its hash is read all the same: users have money by it.
--
-- Safe to run twice: it writes nothing, or a value that is there already. A sale is inspected before, which ends the
-- reservations that are over:
--
--   this mover                        Restore
--   inspect: the sale is whole
--                                     suspend; the entries are moved by Restore
--   read: -10. Otherwise a sale whose hash was lost, and which Restore is making anew, would look like a sale that
--   lost entries, and the mover would end
local m = redis.call('HMGET', KEYS[1], 'ledger', 'serial', 'moved', 'state')
refuse_newer(m[4])
local found = redis.call('XLEN', KEYS[2]) -- a key of another type fails here
if m[4] == '3' then return {{-10, 0, 0}, {}} end
if not m[1] and found == 0 then return {{-6, 0, 0}, {}} end
if m[1] == '1' then
  local serial, moved = tonumber(m[2]), tonumber(m[3])
  if not serial or not moved then return {{-1, -1, 0}, {}} end
  if found ~= serial - moved then return {{-13, serial - moved, found}, {}} end
end
if ARGV[2] == '1' and m[1] and found > 0 then redis.call('HSET', KEYS[1], 'ledger', m[1]) end
return {{0, 0, 0}, redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[1])}
