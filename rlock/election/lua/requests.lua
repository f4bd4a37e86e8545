-- What a leader is asked to do, and whether one who could be the leader has to stand aside. What is expired is removed.
-- uses: clock
-- KEYS[1] the requests to the leader: see stand and drain
-- ARGV[1] the leader's token  ARGV[2] its priority  ARGV[3] how long a preferred candidate must have stood, ms: more than this
-- Reply {1 or 0, ms, 1 or 0}: whether it is asked to resign, and for how long it is not to campaign then; whether a preferred
--   candidate stands
-- Twice: it only reads, but for what means nothing any more.
local key, token, priority, stood = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
local drain, rest, preferred = 0, 0, 0
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local id, first, second, ends = all[i], string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')
  if not first then
    return redis.error_reply('WRONGTYPE the key holds no requests to a leader')
  elseif expired(ends, now) then
    redis.call('HDEL', key, id)
  elseif id == 'drain' then
    if first == token then
      drain, rest = 1, second + 0
    end
  elseif first + 0 > priority and now - second > stood then
    preferred = 1
  end
end
return {drain, rest, preferred}
