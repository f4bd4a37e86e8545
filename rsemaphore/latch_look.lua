-- Look at a latch.
-- KEYS[1] the count  KEYS[2] our record: gen, set, deleted, until, p:<participant> (see latch.go)
-- ARGV[1] what the caller's first look replied as its last value; '-' for a first look
-- Reply {status, count, ms, deleted}: 0 open; 1 closed, with ms left of its TTL (-1 none); 3 the key holds no integer;
--   4 expired; 5 deleted since the first look
-- Twice: only what is known is written down, that a latch is open which somebody else has opened.
local key, record, since = KEYS[1], KEYS[2], ARGV[1]
local held = redis.call('HMGET', record, 'gen', 'until', 'deleted')
local gen, till, deleted = held[1] or '0', held[2], held[3] or ''
if since ~= '-' and deleted ~= '' and deleted ~= since then
  return {5, 0, 0, deleted}
end
local value = redis.call('GET', key)
if value then
  if value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then
    return {3, 0, 0, deleted}
  end
  local count, left = tonumber(value), redis.call('PTTL', key)
  if left == -1 and till and till ~= '0' then
    -- What was set with a TTL has gone, and a process that does not know the record has set this one.
    redis.call('HDEL', record, 'until')
    redis.call('HSET', record, 'gen', string.format('%.0f', tonumber(gen) + 1))
  end
  if count > 0 then
    return {1, count, left, deleted}
  end
  return {0, 0, 0, deleted}
end
if till then
  if till ~= '0' then
    local time = redis.call('TIME')
    if time[1] * 1000 + math.floor(time[2] / 1000) >= tonumber(till) then
      return {4, 0, 0, deleted}
    end
  end
  -- Gone before its TTL: counted down by a process that does not know the record. Written down, or it would count as
  -- expired later.
  redis.call('HDEL', record, 'until')
  redis.call('HSET', record, 'gen', string.format('%.0f', tonumber(gen) + 1))
end
return {0, 0, 0, deleted}
