-- Writes the record of an election, if it is still the one that the writer knows.
-- KEYS  the record: a hash of version and record
-- ARGV  the version that the writer knows, "" for none; the version of this write, which is random; the record; how
--       long it is kept, ms
-- Replies 1: written; 0: there is another record, or none.
-- It may run twice: the second run finds its own version. If another writer came in between, it replies 0 and writes
-- nothing, and the writer reads what there is.
local key = KEYS[1]
local known, version, record, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local present = redis.call('HGET', key, 'version') or ''
if present ~= version and present ~= known then
  return 0
end
redis.call('HSET', key, 'version', version, 'record', record)
redis.call('PEXPIRE', key, keep)
return 1
