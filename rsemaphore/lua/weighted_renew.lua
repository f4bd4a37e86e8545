-- Renew the leases of many weights; one call of the watchdog.
-- KEYS main, leases of each
-- ARGV its owner, which begins with its base, and lease in ms; lease 0: only look; -1: only look, and reply how long it lasts
-- Or, while a slot is being migrated, KEYS[1] one of the two  ARGV owner, lease, which: see package lease
-- Reply, for each: 1 renewed, or 1 + ms left; 0 it is not held; -2 a key is of another type; -3 one may not be read
-- Twice: a lease is raised to what is asked, never shortened, and only of what is still out and not over: a renewal that comes after
--   the release does nothing.
-- uses: clock, renewal
local now = clock()

-- Returns what is replied.
local function renew(leases, owner, lease)
  local base = string.sub(owner, 1, 13)
  local till = redis.pcall('ZSCORE', leases, base)
  if type(till) == 'table' then
    return failed(till)
  end
  if not till or expired(till, now) then
    return 0
  end
  if lease > 0 then
    -- When memory is full, ZADD is refused as the first write of a script even where it adds nothing. ZREM is not.
    redis.call('ZREM', leases, '')
    redis.call('ZADD', leases, 'XX', 'GT', digits(now + lease), base)
  end
  return verdict(lease, -1, tonumber(till), now)
end

local function last(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end
if #KEYS == 1 then
  local key, owner, lease, which = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  local said = which == '2' and renew(key, owner, lease) or 1
  if said == 1 and lease > 0 and redis.call('EXISTS', key) == 1 then
    last(key, lease + 1)
  end
  return {said}
end
local replies = {}
for i = 1, #KEYS / 2 do
  local main, leases, owner, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local out = redis.pcall('HEXISTS', main, string.sub(owner, 1, 13))
  if type(out) == 'table' then
    replies[i] = failed(out)
  else
    replies[i] = out == 1 and renew(leases, owner, lease) or 0
  end
  if replies[i] == 1 and lease > 0 then
    last(main, lease + 1)
    last(leases, lease + 1)
  end
end
return replies
