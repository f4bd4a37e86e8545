-- Say that a worker is there and what it has, or that one is to have nothing; and who is there. What is expired is removed.
-- uses: clock
-- KEYS[1] the workers: a hash, a worker's id -> "<until, server ms> <what it has> <its name>"; "drain:<name>" -> "<until>"
-- ARGV[1] a field of it, '' for none: to look only  ARGV[2] what is written there behind until  ARGV[3] for how long, ms
-- Reply: field, what is behind until, field, …
-- Twice: the second run prolongs what the first wrote. One that comes after its worker has left shows it for that long, with what it had
--   then: others leave those shards to it, and take them when it has expired. No one runs a shard by what is said here: the locks decide.
local key, field, last = KEYS[1], ARGV[1], tonumber(ARGV[3])
local now = clock()
if field ~= '' then
  redis.call('HSET', key, field, digits(now + last) .. ' ' .. ARGV[2])
  if redis.call('PTTL', key) < last then
    redis.call('PEXPIRE', key, ARGV[3])
  end
end
local all, there = redis.call('HGETALL', key), {}
for i = 1, #all, 2 do
  local ends, rest = string.match(all[i + 1], '^(%d+) (.*)$')
  if not ends then
    return redis.error_reply('WRONGTYPE the key holds no workers')
  elseif expired(ends, now) then
    redis.call('HDEL', key, all[i])
  else
    there[#there + 1] = all[i]
    there[#there + 1] = rest
  end
end
return there
