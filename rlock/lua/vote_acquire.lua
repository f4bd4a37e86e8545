-- One server's vote for an owner: acquire, if the server has been up for so long that it cannot have forgotten a vote.
-- The reply also has the id of the server's run.
-- uses: owners, handover, acquire, queue
-- KEYS as of acquire
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] grant channels, without the connection id  ARGV[6] how long the server must have
--   been up, ms
-- Reply as of acquire, with the run (52 bits of the run_id) as the 7th element; or {4, ms until the server votes,
--   server ms, 0, 0, 0, run}, nothing is done
-- Twice: as acquire.
-- The script that grants also reads the server's age. If another connection read it before, the server could restart in
-- between: it was old enough by that reply, and has forgotten every vote (TestQuorum_ServersJustStarted_GiveNoVote,
-- TestQuorum_VoteForgottenInARestart_IsNotGivenTwice).
local key, queue = KEYS[1], KEYS[2]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then
  return redis.error_reply('ERR no vote without INFO server: ' .. info.err)
end
local run = tonumber(string.sub(string.match(info, 'run_id:(%x+)'), 1, 13), 16)
local reply, now, us = check_request(owner, lease, ARGV[3])
if now then
  -- uptime_in_seconds is the difference of two whole seconds, so the server may have been up for one second less.
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
