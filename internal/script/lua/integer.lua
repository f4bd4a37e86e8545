-- Numbers that are kept as text. Lua reads more texts as numbers than the server does (1e3, 0x10, " 5", nan). A script
-- that took such a text for a number would do half of its writes before the server refuses the next one.

-- Reports whether a text is an integer for INCRBY.
local function is_integer(text)
  return text == '0' or string.find(text, '^%-?[1-9]%d*$') ~= nil
end

-- Returns the integer in a text; nil if the text is missing or not an integer, or if a double is not exact to the
-- integer.
local function read_integer(text)
  local n = text and #text < 18 and is_integer(text) and tonumber(text)
  return n and math.abs(n) <= 9007199254740992 and n or nil
end

-- Ends the script if a text begins with "v", as a later version writes it in place of a number in an object that this
-- version must not use: see "Versions" in docs/design/keys.md. Called before anything is written.
local function refuse_newer(text)
  if text and string.sub(text, 1, 1) == 'v' then
    error('NEWER a later version wrote it', 0)
  end
end

-- Returns the integer in a text; nil if the text is missing. Any other text ends the script, so the function is called
-- before anything is written. name is for the error.
local function require_integer(text, name)
  local n = read_integer(text)
  if text and not n then
    refuse_newer(text)
    error('WRONGTYPE the ' .. name .. ' is not an integer', 0)
  end
  return n
end

-- Replaces the first n texts of a list by their numbers. Reports whether each text is an integer to which a double is
-- exact. It takes a third of the time of read_integer. Leading zeros are allowed. Only the first number may be
-- negative. An empty text, and a "-" alone, end the script.
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
