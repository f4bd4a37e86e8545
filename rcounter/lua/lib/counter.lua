-- What the scripts that add to a counter share.
--
-- Lua's numbers are doubles: exact to 2^53, and printed as 1e+15 from there on. No value becomes one here: INCRBY adds, replies are
-- strings, and decimal strings are compared (TestAdd_RandomNumbers_AgreesWithBigIntegers).

-- less reports a < b of decimal integers of up to 25 digits.
local function less(a, b)
  local na, nb = a:byte(1) == 45, b:byte(1) == 45 -- '-'
  if na ~= nb then return na end
  if na then -- of negative numbers the one with the larger digits is less (not "a, b = b:sub(2), a:sub(2)", which the
    -- embedded server's Lua runs one after the other)
    local rest = a:sub(2)
    a = b:sub(2)
    b = rest
  end
  if #a ~= #b then return #a < #b end
  -- in two parts, each exact as a double; not by Lua's own string order, which follows the server's locale
  local ha, hb = a:sub(1, -11), b:sub(1, -11)
  if ha ~= hb then return tonumber(ha) < tonumber(hb) end
  return tonumber(a:sub(-10)) < tonumber(b:sub(-10))
end

-- add is add.lua, which says what its arguments and replies are. value is what the key holds, false if it is missing. If the server
-- refuses a command, add returns the error. Nothing is added then: everything that may be refused comes before INCRBY, because a user
-- who is denied would count once for each try otherwise.
local function add(key, value, delta, initial, limit, ttl)
  local missing = not value
  if missing then
    value = initial
  elseif not (value == '0' or value:find('^%-?[1-9]%d*$'))
      or less('9223372036854775807', value) or less(value, '-9223372036854775808') then
    return {2, value}
  end

  -- A key without an end gets its TTL. A counter that stands at its bound needs it too: without one it would refuse everybody forever.
  if ttl ~= '0' and not missing then
    local left = redis.pcall('PTTL', key)
    if left == -1 then left = redis.pcall('PEXPIRE', key, ttl) end
    if type(left) == 'table' then return left end
  end

  local down = delta:byte(1) == 45
  if limit ~= '' and (down and less(value, limit) or not down and less(limit, value)) then return {1, value} end

  if missing and (initial ~= '0' or ttl ~= '0') then -- says what a missing key says, also if INCRBY is refused
    local set = ttl ~= '0' and redis.pcall('SET', key, initial, 'PX', ttl) or redis.pcall('SET', key, initial)
    if set.err then return set end
  end
  local sum = redis.pcall('INCRBY', key, delta)
  if type(sum) == 'table' then return sum end
  if sum < 9007199254740992 and sum > -9007199254740992 then return {0, string.format('%.0f', sum)} end -- exact, also as a double
  return {0, redis.call('GET', key)}
end
