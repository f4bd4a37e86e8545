-- Renew the leases of parties that wait at barriers; one call of the watchdog.
-- KEYS the barriers (see barrier.lua)
-- ARGV "<party> <id> <generation>", lease in ms for each; lease 0: only look; -1: only look, and reply how long it
--   lasts
-- Reply, for each: 1 renewed, or 1 + ms left; 0 the party is not known, or its lease is over; -1 not known (memory is
--   full); -3 it may not be read; -2 the key holds no barrier
-- Twice: a lease is raised to the wanted lease, never shortened.
-- A party whose generation is over counts as renewed, because a look reports how it ended, not the watchdog. The mark
-- of a broken generation is then kept for another lease, because a party whose renewal succeeded trusts its lease for
-- that long.
-- uses: clock, renewal
local replies = {}
local now = clock()
for i, key in ipairs(KEYS) do
  local party, id, gen = string.match(ARGV[2 * i - 1], '^(%S+) (%S+) (%d+)$')
  local lease = tonumber(ARGV[2 * i])
  local ends_at = digits(now + lease)
  local held = redis.pcall('HMGET', key, 'id', 'gen', 'm:' .. party, 'b:' .. gen)
  if held.err then
    replies[i] = string.find(held.err, 'WRONGTYPE', 1, true) and -2 or -3
  elseif held[1] ~= id then
    replies[i] = 0
  elseif held[2] ~= gen then
    replies[i] = 1
    if held[4] and tonumber(held[4]) < now + lease then
      if type(redis.pcall('HSET', key, 'b:' .. gen, ends_at)) == 'table' then
        replies[i] = -1 -- memory is full
      end
    end
  else
    local ends = held[3] and tonumber(string.match(held[3], '^%d+')) or 0
    if expired(ends, now) then
      replies[i] = 0
    else
      replies[i] = renewal_reply(lease, -1, ends, now)
      if ends < now + lease and type(redis.pcall('HSET', key, 'm:' .. party, ends_at)) == 'table' then
        replies[i] = -1
      end
    end
  end
  if replies[i] >= 1 and lease >= 0 then
    local left, keep = redis.call('PTTL', key), 2 * lease + 60000
    if left >= 0 and left < keep then
      redis.call('PEXPIRE', key, keep)
    end
  end
end
return replies
