-- Delete a plain mutex if it is its owner's, and tell the first in line, or wake the waiters where there is no line.
-- uses: plain_queue
-- KEYS[1] the lock  KEYS[2] its line; without it (see plain_acquire) the release is published
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH  ARGV[4] grant channels, without the connection id
-- ARGV[5] entry of this owner that may be in line, or '' or none. The last three may not be sent: see acquire
-- Reply: 1 released; 0 the owner held nothing
-- Twice: a second run finds nothing, or another's, and says 0. An owner is never used again. A waiter is notified once.
if ARGV[1] == '' then -- see unfit, a function; this script makes none
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local line, publish, grants = KEYS[2], ARGV[3] or 'PUBLISH', ARGV[4] or 'redlatch_grant:'
local held = redis.call('GET', KEYS[1])
local status = 0
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  status = 1
end
if line and ARGV[5] and ARGV[5] ~= '' then
  redis.call('ZREM', line, ARGV[5])
end
if status == 0 and held then
  return status
end
if not line then
  redis.pcall(publish, ARGV[2], '0')
  return status
end
if redis.pcall('EXISTS', line) ~= 1 then -- see emptied
  return status
end
-- libraries
local time = redis.call('TIME')
tell(line, publish, grants, time[1] * 1000 + math.floor(time[2] / 1000))
return status
