-- One server's vote for an owner: acquire, if the server has been up for long enough not to have forgotten anybody's vote;
-- and which run of the server it is.
-- uses: owners, handover, acquire, queue
-- KEYS as of acquire
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] grant channels, without the connection id  ARGV[6] how long the server must have been
--   up, ms
-- Reply as of acquire, and which run (of the run_id, 52 bits) as the 7th; or {4, ms until it votes, server ms, 0, 0, 0,
--   run}, nothing done
-- Twice: as acquire.
-- The age is asked in the script that grants. Asked before, on another connection, the server may restart in between: old enough
-- by the answer, and it has forgotten every vote (TestQuorum_ServersJustStarted_GiveNoVote, TestQuorum_VoteForgottenInARestart_IsNotGivenTwice).
local key, queue = KEYS[1], KEYS[2]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then
  return redis.error_reply('ERR no vote without INFO server: ' .. info.err)
end
local run = tonumber(string.sub(string.match(info, 'run_id:(%x+)'), 1, 13), 16)
local reply, now, us = check_request(owner, lease, ARGV[3])
if now then
  -- In whole seconds on both ends, so it may have been up for one less.
  local up = (tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) - 1) * 1000
  local young = tonumber(ARGV[6]) - up
  if young > 0 then
    reply = {4, young, now}
  else
    reply = acquire(key, queue_of(queue, ARGV[4], ARGV[5], now, us), owner, lease, now, existing_keys(key, queue))
  end
elseif reply.err then
  return reply
end
for i = #reply + 1, 6 do
  reply[i] = 0
end
reply[7] = run
return reply
