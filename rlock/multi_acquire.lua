-- Take several locks, all of them or none. Each is a hash, owner -> count, Redisson's layout.
-- KEYS the locks, and after each its queue if ARGV[1] is 1. While a slot is being migrated the call is refused
-- ARGV[1] 1: with queues, 0: without  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5…] for each lock: owner, grant channels without the connection id
-- Reply {status, ms, server ms, which}: 1 granted, ms left of the leases; 0 nothing is taken, ms left (-1 without end) of
--   the first that is not to be had, and which that is, from 1; 2 too late, nothing done
-- Twice: owners are never used again, so a second run finds its own fields, sets them to what they are and only ever raises
--   their leases. If the first has lost one of them meanwhile, what is left of it is for its caller to give back.
local step = ARGV[1] == '1' and 2 or 1
local lease, notafter, publish = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
for i = 5, #ARGV, 2 do
  if not fit(ARGV[i], 1, lease) then
    return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now, 0}
end
local mine, n = {}, #KEYS / step
for i = 1, n do
  local key = KEYS[(i - 1) * step + 1]
  if redis.call('EXISTS', key) == 1 then
    local owner = ARGV[3 + 2 * i]
    local held = redis.call('HMGET', key, owner, owner .. '!')
    if not held[1] or held[2] and tonumber(held[2]) <= now then -- another's, or it is through with it: see acquire
      return {0, redis.call('PTTL', key), now, i}
    end
    mine[i] = true
  end
end
-- All are free. Where others wait for one they were first: it goes to them, and so it would without us.
if step == 2 then
  for i = 1, n do
    local key, queue = KEYS[2 * i - 1], KEYS[2 * i]
    if not mine[i] and redis.call('EXISTS', queue) == 1 then
      local rest = reserved(queue, now)
      if rest then
        return {0, rest, now, i}
      end
      if hand_over(key, queue, publish, ARGV[4 + 2 * i], now) then
        return {0, redis.call('PTTL', key), now, i}
      end
    end
  end
end
for i = 1, n do
  local key = KEYS[(i - 1) * step + 1]
  redis.call('HSET', key, ARGV[3 + 2 * i], 1)
  local left = redis.call('PTTL', key)
  if left < lease then
    redis.call('PEXPIRE', key, lease)
  end
end
return {1, lease, now, 0}
