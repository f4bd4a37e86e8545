-- Take a fair lock, or raise the count of its owner: see acquire.
-- uses: owners, acquire, fair
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) nobody
--   queues and the first to ask is the next
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- ARGV[5] PUBLISH or SPUBLISH  ARGV[6] channel, without ":" and the owner  ARGV[7] patience, ms: stand in line, and be
--   taken for dead after so long without asking; '': do not stand in line
-- Reply {status, ms, server ms}, as acquire. Where others are first, ms is until the first of them counts as dead.
-- Twice: as acquire; an owner in line keeps its place.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, want, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local no, now = refuse(owner, want, lease, ARGV[4])
if no then
  return no
end
local left = redis.call('PTTL', key)
if left ~= -2 then
  local held = redis.call('HMGET', key, owner, owner .. '!')
  local count, till = held[1] and tonumber(held[1]), held[2] and tonumber(held[2])
  if count and till and till <= now then -- joined, or done with it: see acquire
    return {3, 0, now}
  elseif count then
    return grant(key, owner, want, lease, now, left, count, till)
  end
end
if want > 1 then
  return {3, 0, now}
end
local head, till
if queue then
  head, till = front(queue, timeouts, now)
end
if left == -2 and (not head or head == owner) then
  if head then
    leave(queue, timeouts, owner)
  end
  return grant(key, owner, want, lease, now)
end
if queue and ARGV[7] ~= '' then
  line_up(queue, timeouts, owner, tonumber(ARGV[7]), now)
end
if left == -2 then
  -- free, and the message of the release may not have reached the first in line
  tell(head, ARGV[5], ARGV[6])
  left = math.ceil(till - now)
end
return {0, left, now}
