-- Take a plain mutex: one string key whose value is its owner, as in the Redis documentation's pattern (SET NX PX).
-- uses: owners, handover, queue, clock
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) nobody queues, nothing is handed over
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] grant channels, without the connection id  ARGV[6] entry to queue with, or '' or none
-- ARGV[7] an owner of the same process whose hold this owner takes over, or none. Then nothing else is done, and the lock
--   alone will do
-- Reply as acquire: server ms, one integer, if it was free and is granted; otherwise {status, ms, server ms, …}: 1 granted;
--   0 held by another, or left to another for a moment: ms that either lasts (-1 without end), ticket in the queue (0: none),
--   1 if the holder is none of ours, and 2 more if the lock is a hash; 2 too late, nothing done; 3 the hold that was to be
--   taken over is not held
-- Twice: the owner's own key is granted again, its lease only ever raised; an owner in the queue keeps its ticket.
local key, queue, owner, lease, notafter = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it says itself what fit, clock and late say.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local entry = queue and ARGV[6] ~= '' and ARGV[6]
local first = queue and redis.call('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
if not ARGV[7] and (not first or first == entry) and redis.call('SET', key, owner, 'NX', 'PX', ARGV[2]) then
  if first then
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
if type(held) == 'table' then -- not a string: it waits for a hash as for a string, or the command refuses again
  left = redis.call('PTTL', key)
  holder = hash_holder(key, left) or redis.call('GET', key)
elseif held == owner then
  left = redis.call('PTTL', key)
  if left >= 0 then
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left) -- a write in any case: see grant
  end
  if entry then
    dequeue(q, entry)
  end
  return {1, left, now}
elseif held then
  left = redis.call('PTTL', key)
  holder = is_ours(held) and 0 or 1
else -- free, but others were first: every request that finds it so keeps the order
  left = any_reservation_left(q)
  local overdue = not left and get_field(q, 'told') -- the first was told, and has not come: see handover
  local served
  if not left and not overdue then
    served, left = hand_over(key, q, entry)
  end
  if overdue or not left and not served then -- or nobody is there, or the first is the one that asks
    redis.call('SET', key, owner, 'PX', ARGV[2])
    if entry then
      dequeue(q, entry)
    end
    return now
  elseif not left then -- it is a hash now
    left, holder = redis.call('PTTL', key), 2
  end
end
if not entry then
  return {0, left, now, 0, holder}
end
if first == entry and held then -- it was told in vain: another was quicker
  redis.call('ZREM', queue, '!told')
end
return {0, left, now, (enqueue(q, entry, 0)), holder}
