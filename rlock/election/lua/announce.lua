-- Announce the leader in a key, and publish the change to the observers.
-- uses: send
-- KEYS[1] the announcement
-- ARGV[1] the leader's fencing token  ARGV[2] its owner  ARGV[3] expiry of the announcement, ms
-- ARGV[4] channel of the observers  ARGV[5] PUBLISH or SPUBLISH
-- ARGV[6] how often the leader has changed its value  ARGV[7] the value; ignored while ARGV[6] is 0, because the value is then the label
--   of the owner
-- Reply 1 announced; 0 nothing done: a leader with a later token has announced itself; 2 nothing done: this leader has announced
--   a later value
-- Twice: the second run finds its own announcement, and prolongs it. After the announcement of the next leader the second run has
--   the smaller token, and after the next value the smaller number of changes. After the resignation of its leader the second run
--   announces an owner that holds nothing; readers check the lock, and show no leader.
local key, token, owner, channel, publish, change = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local announcement = token .. ' ' .. owner
if change > 0 then
  announcement = announcement .. ' ' .. ARGV[6] .. ' ' .. ARGV[7]
end
local current = redis.call('GET', key)
if current then
  local last, changed = string.match(current, '^(%d+) [^ ]+ ?(%d*)')
  if not last then
    return redis.error_reply('WRONGTYPE the key holds no announcement of a leader')
  end
  if tonumber(last) > tonumber(token) then
    return 0
  elseif last == token and (tonumber(changed) or 0) > change then
    return 2
  end
end
redis.call('SET', key, announcement, 'PX', ARGV[3])
if current ~= announcement then
  send(publish, channel, token) -- if the user may not publish, observers learn of the change when they poll
end
return 1
