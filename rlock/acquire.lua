-- Take the lock, or raise the count of its owner. Reentrant lock on Redisson's layout: a hash, owner -> count.
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nobody queues, nothing is handed over
-- KEYS[3] of a fenced lock: the last token
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- ARGV[5] PUBLISH or SPUBLISH  ARGV[6] grant channels, without the connection id  ARGV[7] entry to queue with, or '' or none
-- ARGV[8] of a fenced lock: how long the last token is kept, ms
-- Reply {status, ms, server ms, …}: 1 granted, ms left of the lease; 0 held by another, ms left (-1 without end),
--   ticket in the queue (0: none), 1 if the holder is not one of ours; 2 too late, nothing done; 3 lost, the owner to
--   be re-entered holds nothing. Of a fenced lock a grant that is no re-entry is {1, ms, server ms, 0, 0, token}
-- Twice: the count is set to what is wanted, never added to, the lease is only ever raised, and who is in the queue
--   keeps its ticket. A second run mints a second token, which nobody has; both are above all before and below all after.
local key, queue = KEYS[1], KEYS[2]
local owner, want, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (owner and owner ~= '' and want and want >= 1 and want % 1 == 0 and
    lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then -- see fit
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end

local there = 0 -- 2: the lock, 1: the queue
if queue then
  there = redis.call('EXISTS', key, key, queue)
else
  there = redis.call('EXISTS', key, key)
end
if there == 0 and want == 1 and not ARGV[8] then -- free, and nobody waits: the common case
  redis.call('HSET', key, owner, 1)
  redis.call('PEXPIRE', key, lease)
  return {1, lease, now}
end
-- functions

-- A token is more than any before: one more than the last, which is kept for long, and at least the server's µs, so that
-- it is also more where the last one is forgotten (expired, flushed, restarted).
local function granted(left)
  if want > 1 or not ARGV[8] then
    return {1, left, now}
  end
  local token = time[1] * 1000000 + time[2]
  local last = KEYS[3]
  if last then
    token = math.max(token, tonumber(redis.call('GET', last) or 0) + 1)
    if redis.call('PTTL', last) == -1 then -- made by Redisson, which counts from 1 when it is gone
      redis.call('SET', last, string.format('%.0f', token))
    else
      redis.call('SET', last, string.format('%.0f', token), 'PX', ARGV[8])
    end
  end
  return {1, left, now, 0, 0, token}
end

if there == 0 then
  if want > 1 then
    return {3, 0, now}
  end
  redis.call('HSET', key, owner, want)
  redis.call('PEXPIRE', key, lease)
  return granted(lease)
end
local entry = ARGV[7] ~= '' and ARGV[7] or nil
if there == 1 then
  if want > 1 then
    return {3, 0, now}
  end
  -- free, but others were first: whoever comes by keeps the order
  local rest = reserved(queue, now)
  if not rest and not hand_over(key, queue, ARGV[5], ARGV[6], now, entry) then
    redis.call('HSET', key, owner, want)
    redis.call('PEXPIRE', key, lease)
    if entry then
      redis.call('ZREM', queue, entry, '!' .. owner)
    end
    return granted(lease)
  end
  if rest then
    local ticket = entry and enter(queue, entry, now, time[1] * 1000000 + time[2]) or 0
    return {0, rest, now, ticket, 0}
  end
end
local left = redis.call('PTTL', key)
local all = redis.call('HGETALL', key)
local count, till, foreign
for i = 1, #all, 2 do
  if all[i] == owner then
    count = tonumber(all[i + 1])
  elseif all[i] == owner .. '!' then
    till = tonumber(all[i + 1])
  elseif not ours(all[i]) then
    foreign = 1
  end
end
if not count then
  if want > 1 then
    return {3, 0, now}
  end
  local ticket = entry and queue and enter(queue, entry, now, time[1] * 1000000 + time[2]) or 0
  return {0, left, now, ticket, foreign or 0}
end
if till then -- joined: this owner has a lease of its own (see join)
  if till <= now then
    return {3, 0, now}
  end
  if till < now + lease then
    redis.call('HSET', key, owner .. '!', string.format('%.0f', now + lease))
  end
end
if count < want then
  redis.call('HSET', key, owner, want)
end
if left ~= -1 then
  -- Also where it changes nothing: replicas are asked to confirm what this connection wrote, and it may be the second
  -- run that wrote nothing else.
  left = math.max(left, lease)
  redis.call('PEXPIRE', key, left)
end
return granted(left)
