-- The ledgers of stocks and red packets.
-- uses: clock
--
-- A ledger is a stream. Its entries are numbered: the first has the id 1-0, the next 2-0. The hash of its object counts
-- the entries, and counts in 'moved' the entries that were removed because a database has them.

-- ledger_mismatch returns nil, or the reply if the stream does not have the expected number of entries: {-13, expected,
-- found}, or {-1, -1, 0} if the object has no counts.
local function ledger_mismatch(stream, serial, moved)
  local length = redis.call('XLEN', stream) -- a key of another type fails here
  if not serial or not moved then return {-1, -1, 0} end
  if length ~= serial - moved then return {-13, serial - moved, length} end
end

-- append writes lines after the entry with the number serial, and returns the number of the last line.
local function append(stream, serial, lines)
  for i = 1, #lines do redis.call('XADD', stream, digits(serial + i) .. '-0', unpack(lines[i])) end
  return serial + #lines
end

-- is_unchanged reports whether the entry with the id ARGV[1] has the values ARGV[2…].
local function is_unchanged(stream)
  local last = redis.call('XRANGE', stream, ARGV[1], ARGV[1])[1]
  if not last then return false end
  for i = 2, #ARGV do
    if last[2][2 * i - 2] ~= ARGV[i] then return false end
  end
  return true
end

-- shorten removes the entries up to the id ARGV[1], and returns their number. If keeps is '1', the hash counts them.
local function shorten(stream, hash, keeps)
  local n = redis.call('XTRIM', stream, 'MINID', digits(ARGV[1]:match('^%d+') + 1))
  if keeps == '1' then redis.call('HINCRBY', hash, 'moved', digits(n)) end
  return n
end
