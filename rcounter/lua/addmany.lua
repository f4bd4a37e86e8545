-- Adds to several counters: add.lua for each, one after the other.
-- uses: counter
--
-- KEYS[i]         a counter, a string; the same one may come more than once
-- ARGV[4i-3…4i]   for KEYS[i], as for add.lua
--
-- Replies  {code, text} of each, in one list: as add.lua, and
--          {3, error}    the key holds another type, or the server refused a command: not added
--
-- Not safe to run twice: it adds twice. The caller sends it once.
local replies = {}
for i = 1, #KEYS do
  -- A key of another type must not end the script, which has added to others.
  local value = redis.pcall('GET', KEYS[i])
  local r
  if type(value) == 'table' and value.err then
    r = {3, value.err}
  else
    r = add(KEYS[i], value, ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i])
    if r.err then r = {3, r.err} end
  end
  replies[2 * i - 1] = tostring(r[1])
  replies[2 * i] = r[2]
end
return replies
