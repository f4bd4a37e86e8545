-- One server's vote for an owner: acquire.lua, which stands in this file's function, if the server has been up for long
-- enough not to have forgotten anybody's vote; and which run of the server it is.
-- KEYS as of acquire.lua  ARGV[1…7] as of acquire.lua  ARGV[8] how long the server must have been up, ms
-- Reply as of acquire.lua, and which run (of the run_id, 52 bits) as the 7th; or {4, ms until it votes, server ms, 0, 0, 0,
--   run}, nothing done. A re-entry needs no vote anew.
-- Twice: as acquire.lua.
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then
  return redis.error_reply('ERR no vote without INFO server: ' .. info.err)
end
local run = tonumber(string.sub(string.match(info, 'run_id:(%x+)'), 1, 13), 16)
if tonumber(ARGV[2]) == 1 then
  -- In whole seconds on both ends, so it may have been up for one less.
  local up = (tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) - 1) * 1000
  if up < tonumber(ARGV[8]) then
    local time = redis.call('TIME')
    return {4, tonumber(ARGV[8]) - up, time[1] * 1000 + math.floor(time[2] / 1000), 0, 0, 0, run}
  end
end
local reply = acquire(KEYS, {unpack(ARGV, 1, 7)})
for i = #reply + 1, 6 do
  reply[i] = 0
end
reply[7] = run
return reply
