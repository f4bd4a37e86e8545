-- Acquire a plain mutex: one string key whose value is its owner, the pattern of the Redis documentation (SET NX PX).
-- uses: owners, handover, queue, clock
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) no waiter queues, and nothing is handed
--   over
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] grant channels, without the connection id  ARGV[6] entry to queue with, '' or none
-- ARGV[7] an owner of the same process whose hold is transferred to this owner, or none. Then nothing else is done, and
--   KEYS[1] is the only key
-- Reply as acquire: server ms, one integer: the lock was free, and is granted. Otherwise {status, ms, server ms, …}:
--   1  granted
--   0  held by another owner, or reserved for another waiter: ms until the end of either (-1: no end), ticket in the
--      queue (0: none), and the holder: 0 of this library, 1 of another program, 2 and 3 the same for a lock that is a
--      hash (hash_holder)
--   2  too late; nothing is done
--   3  the owner of ARGV[7] does not hold the lock
-- Twice: the owner's own key is granted again, and its lease is only raised. An owner in the queue keeps its ticket.
local key, queue, owner, lease, notafter = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it repeats the code of is_valid, clock and late.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is not valid')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local entry = queue and ARGV[6] ~= '' and ARGV[6]
-- EXISTS first, because ZRANGE takes the server several times as long, and mostly nobody is queued.
local is_queued = queue and redis.call('EXISTS', queue) == 1
local first_entry = is_queued and redis.call('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
if not ARGV[7] and (not first_entry or first_entry == entry) and redis.call('SET', key, owner, 'NX', 'PX', ARGV[2]) then
  if first_entry then
    redis.call('ZREM', queue, entry, '!' .. owner, '!told')
  end
  return now
end
-- libraries
local q = queue_of(queue, ARGV[4], ARGV[5], now, time[1] * 1000000 + time[2])
local held, holder, left = redis.pcall('GET', key), 0, nil
if ARGV[7] then -- see transfer_hold
  if held == ARGV[7] then
    redis.call('SET', key, owner, 'PX', ARGV[2])
    return {1, lease, now}
  elseif held ~= owner then
    return {3, 0, now}
  end
end
if type(held) == 'table' then -- not a string: the owner waits for a hash, too, or the command returns the error again
  left = redis.call('PTTL', key)
  holder = hash_holder(key, left) or redis.call('GET', key)
elseif held == owner then
  left = redis.call('PTTL', key)
  if left >= 0 then
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left) -- written even if it changes nothing: see grant
  end
  if entry then
    dequeue(q, entry)
  end
  return {1, left, now}
elseif held then
  left = redis.call('PTTL', key)
  holder = is_ours(held) and 0 or 1
else -- free, but others are queued: every such request keeps the order
  left = any_reservation_left(q)
  local overdue = not left and get_field(q, 'told') -- the first waiter was notified, and sent no request: see handover
  local served
  if not left and not overdue then
    served, left = hand_over(key, q, entry)
  end
  if overdue or not left and not served then -- or no waiter is alive, or this owner is the first
    redis.call('SET', key, owner, 'PX', ARGV[2])
    if entry then
      dequeue(q, entry)
    end
    return now
  elseif not left then -- a waiter for a hash holds the lock now
    left, holder = redis.call('PTTL', key), 2
  end
end
if not entry then
  return {0, left, now, 0, holder}
end
if first_entry == entry and held then -- the waiter was notified, and another program was quicker
  redis.call('ZREM', queue, '!told')
end
return {0, left, now, (enqueue(q, entry, 0)), holder}
