-- Register or drain a worker, and return all live workers. Expired entries are removed.
-- uses: clock
-- KEYS[1] the workers: a hash, a worker's id -> "<expiry, server ms> <its shards> <its name>"; "drain:<name>" -> "<expiry> "
-- ARGV[1] the field to write, '' to read only  ARGV[2] the field's text behind the expiry  ARGV[3] its expiry from now, ms
-- Reply: field, its text behind the expiry, field, …
-- Twice: the second run prolongs the entry. After its worker has left, the second run shows the worker until the entry expires, with
--   the shards that it had: the other workers leave these shards alone until then. The entries never let a worker run a shard: only
--   the lock of the shard does.
local key, field, expiry = KEYS[1], ARGV[1], tonumber(ARGV[3])
local now = clock()
if field ~= '' then
  redis.call('HSET', key, field, digits(now + expiry) .. ' ' .. ARGV[2])
  if redis.call('PTTL', key) < expiry then
    redis.call('PEXPIRE', key, ARGV[3])
  end
end
local entries, live = redis.call('HGETALL', key), {}
for i = 1, #entries, 2 do
  local expires_at, text = string.match(entries[i + 1], '^(%d+) (.*)$')
  if not expires_at then
    return redis.error_reply('WRONGTYPE the key holds no workers')
  elseif expired(expires_at, now) then
    redis.call('HDEL', key, entries[i])
  else
    live[#live + 1] = entries[i]
    live[#live + 1] = text
  end
end
return live
