-- Acquire the lock. Redisson's layout: a hash, owner -> count. The count of an owner of this library is 1, because its
-- process counts re-entries.
-- uses: acquire, queue
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) no waiter queues, and nothing is handed
--   over
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] grant channels, without the connection id  ARGV[6] entry to queue with, '' or
--   none. Outside a Cluster these three are sent with an entry only, because most calls do not use them
-- ARGV[7] an owner of the same process whose hold is transferred to this owner, or none. Then nothing else is done: see
--   transfer_hold
-- Reply: server ms, one integer: the lock was free, and is granted with the full lease. Otherwise {status, ms, server
--   ms, …}:
--   1  granted; ms left of the lease
--   0  held by another owner; ms left (-1: no end), ticket in the queue (0: none), and the holder: 0 of this library, 1
--      of another program, 2 and 3 the same for a lock of another kind (string_holder)
--   2  too late; nothing is done
--   3  the owner's own lease (see join) is over, or the owner was released (see keep); nothing is raised
--   3 and 6 of transfer_hold
-- Twice: a holder is granted the lock again, and its lease is only raised. An owner in the queue keeps its ticket.
local key, queue = KEYS[1], KEYS[2]
local owner, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it repeats the code of is_valid, clock and late.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is not valid')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local existing -- as existing_keys returns it
if queue then
  existing = redis.call('EXISTS', key, key, queue)
else
  existing = redis.call('EXISTS', key, key)
end
if existing == 0 and not ARGV[7] then -- free, and no waiters: the common case
  redis.call('HSET', key, owner, '1')
  local set = redis.pcall('PEXPIRE', key, ARGV[2]) -- as text: the server formats a number first
  if type(set) == 'table' then -- see set_expiry
    redis.call('DEL', key)
    return set
  end
  return now
end
-- libraries
if ARGV[7] then
  return transfer_hold(key, owner, lease, now, ARGV[7])
end
local q = queue_of(queue, ARGV[4], ARGV[5], now, time[1] * 1000000 + time[2])
return acquire(key, q, owner, lease, now, existing, ARGV[6] ~= '' and ARGV[6] or nil)
