-- Take back what a leader has announced, after it has resigned, and tell those who listen.
-- uses: send
-- KEYS[1] the announcement
-- ARGV[1] the leader's fencing token  ARGV[2] its owner  ARGV[3] channel of the observers  ARGV[4] PUBLISH or SPUBLISH
-- Reply 1 no leader is announced now; 0 the next leader is, nothing done
-- Twice: the second run finds nothing to take back. Neither run touches what another leader has announced, because no owner
--   is used again.
local key, channel, publish = KEYS[1], ARGV[3], ARGV[4]
local mine = ARGV[1] .. ' ' .. ARGV[2] .. ' '
local now = redis.call('GET', key)
if now and string.sub(now .. ' ', 1, #mine) ~= mine then -- whatever its value has become
  return 0
end
if now then
  redis.call('DEL', key)
end
send(publish, channel, '0')
return 1
