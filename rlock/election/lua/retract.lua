-- Delete the announcement of a leader that has resigned, and notify the observers.
-- uses: send
-- KEYS[1] the announcement
-- ARGV[1] the leader's fencing token  ARGV[2] its owner  ARGV[3] channel of the observers  ARGV[4] PUBLISH or SPUBLISH
-- Reply 1 no leader is announced now; 0 nothing done: the next leader is announced
-- Twice: the second run finds no announcement to delete. Neither run touches the announcement of another leader, because an owner
--   id is never used again.
local key, channel, publish = KEYS[1], ARGV[3], ARGV[4]
local prefix = ARGV[1] .. ' ' .. ARGV[2] .. ' '
local current = redis.call('GET', key)
if current and string.sub(current .. ' ', 1, #prefix) ~= prefix then -- the value may have changed, and is not compared
  return 0
end
if current then
  redis.call('DEL', key)
end
send(publish, channel, '0')
return 1
