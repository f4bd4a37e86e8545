-- Say who leads, for those who look, and tell those who listen.
-- uses: send
-- KEYS[1] the announcement
-- ARGV[1] the leader's fencing token  ARGV[2] its owner  ARGV[3] for how long the announcement stands, ms
-- ARGV[4] channel of the observers  ARGV[5] PUBLISH or SPUBLISH
-- ARGV[6] how often the leader has changed its value  ARGV[7] the value, if it has; at first it is the label of the owner
-- Reply 1 it stands; 0 a leader with a later token has announced itself, nothing done; 2 this leader has announced a later value,
--   nothing done
-- Twice: the second run finds its own announcement, and prolongs it. One that comes after the next leader has announced itself
--   has the smaller token, and one that comes after the next value the smaller number. One that comes after its leader has resigned
--   names an owner who holds nothing, so it is not believed.
local key, token, owner, channel, publish, change = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local mine = token .. ' ' .. owner
if change > 0 then
  mine = mine .. ' ' .. ARGV[6] .. ' ' .. ARGV[7]
end
local now = redis.call('GET', key)
if now then
  local last, changed = string.match(now, '^(%d+) [^ ]+ ?(%d*)')
  if not last then
    return redis.error_reply('WRONGTYPE the key holds no announcement of a leader')
  end
  if tonumber(last) > tonumber(token) then
    return 0
  elseif last == token and (tonumber(changed) or 0) > change then
    return 2
  end
end
redis.call('SET', key, mine, 'PX', ARGV[3])
if now ~= mine then
  send(publish, channel, token) -- without the right to it observers look now and then
end
return 1
