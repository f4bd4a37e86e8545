-- Look at permits by their ids, without changing them.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV ids, 16 bytes each
-- Reply {server ms, then for each id the end of its lease (0: it is not out) and its label}
-- Twice: reads only.
-- uses: clock
local permits, notes = KEYS[2], KEYS[3]
local reply = {digits(clock())}
for _, id in ipairs(ARGV) do
  reply[#reply + 1] = digits(tonumber(redis.call('ZSCORE', permits, id) or 0))
  reply[#reply + 1] = redis.call('HGET', notes, id) or ''
end
return reply
