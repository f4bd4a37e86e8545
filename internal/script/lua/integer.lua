-- Numbers that are kept as text. Lua reads more texts as numbers than the server does (1e3, 0x10, " 5", nan), and a script that took one
-- for a number would do half of its writes before the server refuses the next.

-- Reports whether a text is an integer, as INCRBY has it.
local function is_integer(text)
  return text == '0' or string.find(text, '^%-?[1-9]%d*$') ~= nil
end

-- Returns the integer in a text; nil: there is no text, or any other, or an integer to which a double is not exact.
local function read_integer(text)
  local n = text and #text < 18 and is_integer(text) and tonumber(text)
  return n and math.abs(n) <= 9007199254740992 and n or nil
end

-- Returns the integer in a text, and nil where there is no text. What exact does not take ends the script, so it is asked for before
-- anything is written.
local function require_integer(text, what)
  local n = read_integer(text)
  if text and not n then
    error('WRONGTYPE the ' .. what .. ' is not an integer', 0)
  end
  return n
end

-- Makes numbers of the first n texts of a list, and reports whether it could: each is an integer to which a double is exact. It takes a
-- third of the time that exact does. Leading zeros are taken, and of what has digits and a '-' within it is the end of the script.
local function read_integers(list, n)
  for i = 1, n do
    if not list[i] then return false end
  end
  if not string.find(table.concat(list, '', 1, n), '^%-?%d+$') then return false end
  for i = 1, n do
    list[i] = list[i] + 0
    if list[i] > 9007199254740992 then return false end
  end
  return true
end
