-- Renew the leases of many permits; one call of the watchdog.
-- KEYS count, permits, notes of each
-- ARGV its owner, and lease in ms; lease 0: only look; -1: only look, and reply how long it lasts
-- Or, while a slot is being migrated, KEYS[1] one of the three  ARGV owner, lease, which: see package lease. The count is
--   left to its end then, because one that outlasted the permits would miss those: an acquisition that finds no count counts them.
-- Reply, for each: 1 renewed, or 1 + ms left; 0 it is not held, or not all of its ids are; -1 not known (memory is full); -3 they may not be read; -2 they are no
--   permits
-- Twice: a lease is raised to what is asked, never shortened, and only that of an id that is still out and not over:
--   a renewal that comes after the release does nothing.
-- uses: clock, permits, renewal
local replies = {}
local now = clock()

-- Returns the verdict, and how many leases it has raised.
local function renew(permits, owner, lease)
  local raise, least = false, FOREVER
  local base, n = read_owner(owner)
  local scores = redis.pcall('ZMSCORE', permits, unpack(ids_of(base, n)))
  if scores.err then
    return string.find(scores.err, 'WRONGTYPE', 1, true) and -2 or -3, 0
  end
  for _, till in ipairs(scores) do
    if not till or expired(till, now) then
      return 0, 0
    end
    least = math.min(least, tonumber(till))
    raise = raise or tonumber(till) < now + lease
  end
  if lease > 0 then
    -- Also where it changes nothing: replicas are asked to confirm what this connection wrote.
    local ours = redis.call('PTTL', permits)
    if ours >= 0 then
      redis.call('PEXPIRE', permits, ours)
    end
  end
  if raise then
    -- When memory is full, ZADD is refused as the first write of a script even where it adds nothing. ZREM is not.
    redis.call('ZREM', permits, '')
    put_out(permits, nil, base, n, now + lease, '')
  end
  return verdict(lease, -1, least < FOREVER and least or nil, now), raise and n or 0
end

if #KEYS == 1 then
  local key, owner, lease, which = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  local said = which == '2' and renew(key, owner, lease) or 1
  local left = redis.call('PTTL', key)
  if said == 1 and which ~= '1' and lease > 0 and left >= 0 and left < lease + 1 then
    redis.call('PEXPIRE', key, lease + 1)
  end
  return {said}
end
for i = 1, #KEYS / 3 do
  local count, permits, notes, owner, lease = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local said, raised = renew(permits, owner, lease)
  if raised > 0 then
    local keep = redis.pcall('HGET', notes, 'keep')
    keep = type(keep) == 'string' and tonumber(keep) or 0
    prolong(count, permits, notes, now, math.max(lease + 1, keep))
  end
  replies[i] = said
end
return replies
