-- Renew the leases of many permits; one call of the watchdog.
-- KEYS count, permits, notes of each  ARGV its ids, 16 bytes each without anything between, and lease in ms; lease 0: only look
-- Reply, for each: 1 renewed; 0 it is not held, or not all of its ids are; -1 error on these keys, not known
-- Twice: a lease is raised to what is asked, never shortened, and only that of an id that is still out and not over:
--   a renewal that comes after the release does nothing.
local replies = {}
local now = clock()
for i = 1, #KEYS / 3 do
  local count, permits, notes, ids, lease = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local verdict, raise = 1, {}
  for k = 1, #ids, 16 do
    local id = string.sub(ids, k, k + 15)
    local till = redis.pcall('ZSCORE', permits, id)
    if type(till) == 'table' then
      verdict = -1
      break
    end
    if not till or tonumber(till) <= now then
      verdict = 0
      break
    end
    if tonumber(till) < now + lease then
      raise[#raise + 1] = id
    end
  end
  if verdict == 1 and lease > 0 then
    -- Also where it changes nothing: replicas are asked to confirm what this connection wrote.
    local ours = redis.call('PTTL', permits)
    if ours >= 0 then
      redis.call('PEXPIRE', permits, ours)
    end
  end
  if verdict == 1 and #raise > 0 then
    -- When memory is full, ZADD is refused as the first write of a script even where it adds nothing. ZREM is not.
    redis.call('ZREM', permits, '')
    for _, id in ipairs(raise) do
      redis.call('ZADD', permits, 'XX', number(now + lease), id)
    end
    local keep = redis.pcall('HGET', notes, 'keep')
    keep = type(keep) == 'string' and tonumber(keep) or 0
    last(count, permits, notes, now, math.max(lease + 1, keep))
  end
  replies[i] = verdict
end
return replies
