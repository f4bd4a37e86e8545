-- Acquire several locks, all or none. Each is a hash, owner -> count: Redisson's layout.
-- uses: owners, handover, acquire, queue
-- KEYS the locks, and after each its queue. While a slot is being migrated, the server refuses the call
-- ARGV[1] lease, ms  ARGV[2] not after, server ms (0: any time)
-- ARGV[3] PUBLISH or SPUBLISH  ARGV[4…] for each lock: owner, grant channels without the connection id
-- Reply as of acquire, for all locks together: 1 granted; 0 nothing is taken, ms left (-1: no end) of the first lock
--   that is not free, and in place of a ticket the number of that lock, from 0; 2 too late, nothing is done
-- Twice: owners are never used again, so a second run finds its own fields, and only raises their leases. If a lock was
--   lost meanwhile, and another owner holds it, the second run replies 0, and the caller releases the other locks.
local lease = tonumber(ARGV[1])
for i = 6, #ARGV, 2 do
  local refusal = validation_error(ARGV[i], lease)
  if refusal then
    return refusal
  end
end
local refusal, now, us = check_request(ARGV[4], lease, ARGV[2])
if refusal then
  return refusal
end
-- The held locks are checked first. The check of a free lock with a queue hands it over, as any other request does.
local n, states, granted = #KEYS / 2, {}, {}
for free = 0, 1 do
  for i = 1, n do
    local key, queue, owner = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 + 2 * i]
    if free == 0 then
      states[i] = existing_keys(key, queue)
    end
    if (states[i] < 2) == (free == 1) then
      local blocking, left, ends_at = find_refusal(key, queue_of(queue, ARGV[3], ARGV[3 + 2 * i], now, us), owner, now, states[i])
      if blocking then -- held by another owner, or this owner was released: see acquire
        return {0, blocking[1] == 0 and blocking[2] or redis.call('PTTL', key), now, i - 1, 0}
      end
      granted[i] = {left, ends_at}
    end
  end
end
for i = 1, n do
  grant(KEYS[2 * i - 1], ARGV[2 + 2 * i], lease, now, unpack(granted[i], 1, 2))
end
return {1, lease, now}
