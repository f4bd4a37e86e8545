-- Take the lock. Redisson's layout: a hash, owner -> count. That of an owner of ours is 1: its process counts re-entries.
-- uses: acquire, queue
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) no one queues, nothing is handed over
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] grant channels, without the connection id  ARGV[6] entry to queue with, or '' or none
--   Outside a Cluster these three are not sent without an entry: most calls make no use of them
-- ARGV[7] an owner of the same process whose hold this one takes over, or none; then nothing else is done: see transfer_hold
-- Reply: server ms, one integer: it was free, and is granted with the lease in full. Otherwise {status, ms, server ms, …}:
--   1 granted, ms left of the lease; 0 held by another, ms left (-1 without end), ticket in the queue (0: none), 1 if the
--   holder is not one of ours, and 2 more if it is a lock of another kind (string_holder); 2 too late, nothing done; 3 the owner's own lease (see join) is over, or it
--   is done with the lock (see keep): nothing is raised; 3 or 6 of transfer_hold
-- Twice: an owner that has the lock is granted it again, its lease is only ever raised, and an owner in the queue keeps its
--   ticket.
local key, queue = KEYS[1], KEYS[2]
local owner, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it says itself what fit, clock and late say.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local there -- as existing_keys returns it
if queue then
  there = redis.call('EXISTS', key, key, queue)
else
  there = redis.call('EXISTS', key, key)
end
if there == 0 and not ARGV[7] then -- free, and no waiters: the common case
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
return acquire(key, q, owner, lease, now, there, ARGV[6] ~= '' and ARGV[6] or nil)
