-- The ledgers of stocks and red packets.
-- uses: clock
--
-- A ledger is a stream. Its entries are numbered: the first has the id 1-0, the next 2-0. A hash of its object says how many there have
-- been, and has in 'moved' how many were removed because a database has them.

-- unlike is nil, or the reply if the stream has not the entries that it should have: {-13, should be, found}, or {-1, -1, 0} if the
-- object's numbers are none.
local function ledger_mismatch(stream, serial, moved)
  local length = redis.call('XLEN', stream) -- a key of another type fails here
  if not serial or not moved then return {-1, -1, 0} end
  if length ~= serial - moved then return {-13, serial - moved, length} end
end

-- append writes lines after the entry with the number serial, and returns the number of the last.
local function append(stream, serial, lines)
  for i = 1, #lines do redis.call('XADD', stream, digits(serial + i) .. '-0', unpack(lines[i])) end
  return serial + #lines
end

-- unchanged is whether the entry with the id ARGV[1] has the values ARGV[2…].
local function is_unchanged(stream)
  local last = redis.call('XRANGE', stream, ARGV[1], ARGV[1])[1]
  if not last then return false end
  for i = 2, #ARGV do
    if last[2][2 * i - 2] ~= ARGV[i] then return false end
  end
  return true
end

-- shorten removes the entries up to the one with the id ARGV[1], and returns how many those were. The hash counts them if keeps is '1'.
local function shorten(stream, hash, keeps)
  local n = redis.call('XTRIM', stream, 'MINID', digits(ARGV[1]:match('^%d+') + 1))
  if keeps == '1' then redis.call('HINCRBY', hash, 'moved', digits(n)) end
  return n
end
