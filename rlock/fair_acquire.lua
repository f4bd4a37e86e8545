-- Take a fair lock, or raise the count of its owner: see acquire.
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) nobody
--   queues and the first to ask is the next
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- ARGV[5] PUBLISH or SPUBLISH  ARGV[6] channel, without ":" and the owner  ARGV[7] patience, ms: stand in line, and be
--   taken for dead after so long without asking; '': do not stand in line
-- Reply {status, ms, server ms}, as acquire. Where others are first, ms is until the first of them counts as dead.
-- Twice: as acquire; who stands in line keeps its place.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, want, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not fit(owner, want, lease) then
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local left = redis.call('PTTL', key)
if left ~= -2 then
  local held = redis.call('HMGET', key, owner, owner .. '!')
  local count, till = held[1] and tonumber(held[1]), held[2] and tonumber(held[2])
  if count then
    if till then -- joined, or through with it: see acquire
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
      left = math.max(left, lease)
      redis.call('PEXPIRE', key, left) -- a write in any case: see acquire
    end
    return {1, left, now}
  end
end
if want > 1 then
  return {3, 0, now}
end
local head, till
if queue then
  head, till = first(queue, timeouts, now)
end
if left == -2 and (not head or head == owner) then
  if head then
    leave(queue, timeouts, owner)
  end
  redis.call('HSET', key, owner, want)
  redis.call('PEXPIRE', key, lease)
  return {1, lease, now}
end
if queue and ARGV[7] ~= '' then
  enter(queue, timeouts, owner, tonumber(ARGV[7]), now)
end
if left == -2 then
  -- free, and its turn: the word of the release may not have reached it
  tell(head, ARGV[5], ARGV[6])
  left = math.ceil(till - now)
end
return {0, left, now}
