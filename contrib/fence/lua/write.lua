-- Writes a key, unless a greater fencing token was seen for it.
-- KEYS  the fence, and for all but ADVANCE the key
-- ARGV  token, then ADVANCE | SET value | HSET field value ... | DEL
-- Replies 1: done; 0: a greater token was seen, nothing was written; an error if the fence holds no token.
-- It may run twice: an equal token is admitted, and writes the same again. If another token came in between, the second
-- run is refused. The fence is written before the key, so that a write that fails (out of memory) leaves nothing that a
-- stale holder could use. The fence has no expiry: a token that is forgotten is not refused.
local fence, key = KEYS[1], KEYS[2]
local token, verb = ARGV[1], ARGV[2]

local seen = redis.call('GET', fence)
if seen then
  local number = tonumber(seen)
  if not number then
    return redis.error_reply('ERR the fence holds no token')
  end
  if number > tonumber(token) then
    return 0
  end
end
redis.call('SET', fence, token)
if verb == 'SET' then
  redis.call('SET', key, ARGV[3])
elseif verb == 'HSET' then
  redis.call('HSET', key, unpack(ARGV, 3))
elseif verb == 'DEL' then
  redis.call('DEL', key)
end
return 1
