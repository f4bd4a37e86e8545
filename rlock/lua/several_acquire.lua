-- Take several locks, all of them or none. Each is a hash, owner -> count, Redisson's layout.
-- uses: owners, handover, acquire, queue
-- KEYS the locks, and after each its queue. While a slot is being migrated the call is refused
-- ARGV[1] lease, ms  ARGV[2] not after, server ms (0: any time)
-- ARGV[3] PUBLISH or SPUBLISH  ARGV[4…] for each lock: owner, grant channels without the connection id
-- Reply as of acquire, of all: 1 granted; 0 nothing is taken, ms left (-1 without end) of the first lock that is not free,
--   and in place of a ticket the number of that lock, from 0; 2 too late, nothing done
-- Twice: owners are never used again, so a second run finds its own fields, and only ever raises their leases. If the first has lost one of them meanwhile, what is left of it is for its caller to give back.
local lease = tonumber(ARGV[1])
for i = 6, #ARGV, 2 do
  local bad = validation_error(ARGV[i], lease)
  if bad then
    return bad
  end
end
local no, now, us = check_request(ARGV[4], lease, ARGV[2])
if no then
  return no
end
-- Look at the held ones first. To look at a free lock for which others wait hands it over to them, as any other request would.
local n, states, mine = #KEYS / 2, {}, {}
for free = 0, 1 do
  for i = 1, n do
    local key, queue, owner = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 + 2 * i]
    if free == 0 then
      states[i] = existing_keys(key, queue)
    end
    if (states[i] < 2) == (free == 1) then
      local blocking, left, till = find_refusal(key, queue_of(queue, ARGV[3], ARGV[3 + 2 * i], now, us), owner, now, states[i])
      if blocking then -- another's, or its owner is done with it: see acquire
        return {0, blocking[1] == 0 and blocking[2] or redis.call('PTTL', key), now, i - 1, 0}
      end
      mine[i] = {left, till}
    end
  end
end
for i = 1, n do
  grant(KEYS[2 * i - 1], ARGV[2 + 2 * i], lease, now, unpack(mine[i], 1, 2))
end
return {1, lease, now}
