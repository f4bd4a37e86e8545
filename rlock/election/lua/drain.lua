-- Ask the leader with a token to resign.
-- uses: clock
-- KEYS[1] the requests to the leader: see stand. That to resign is "drain" -> "<token> <rest, ms> <until>"
-- ARGV[1] the leader's token  ARGV[2] for how long it is not to campaign after that, ms  ARGV[3] for how long this stands, ms
-- Reply 1
-- Twice: the same request. One that comes late names a token that no later leader has.
local key = KEYS[1]
local now = clock()
redis.call('HSET', key, 'drain', ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. digits(now + ARGV[3]))
if redis.call('PTTL', key) < ARGV[3] + 0 then
  redis.call('PEXPIRE', key, ARGV[3])
end
return 1
