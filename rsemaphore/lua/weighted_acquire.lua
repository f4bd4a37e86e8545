-- Acquire weights for several waiters of one process, for each all or none, and serve the queue.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue  KEYS[4] shares
-- ARGV as of acquire.lua; ARGV[5] is not used, because Redisson has no weights
-- Reply as of acquire.lua
-- Twice: a weight that is held already is not taken again. Its lease is only raised, and the weight stays as it is,
--   because a part of it may have been released meanwhile. An entry keeps its ticket. Other waiters of the process that
--   a run served find their weights when they poll.
-- uses: clock, queue, serve, verbs, weights
local main, leases, queue, notafter = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
local now, us = clock()
if late(notafter, now) then
  return {2, now, 0, -1, -1, 0}
end
-- As in acquire.lua: the first call of a client tries the commands of the release. The server refuses ZADD, which adds
-- nothing here, if its memory is full.
if notafter == '0' then
  redis.call('ZADD', leases, 'XX', 0, '')
  redis.call('ZREM', leases, '')
  redis.call('HDEL', main, '')
  redis.call('EXISTS', leases)
  redis.call('ZSCORE', leases, '')
  redis.call('ZRANGE', leases, 0, 0)
  redis.call('ZMSCORE', leases, '')
  redis.call('ZCOUNT', leases, 0, 0)
end
local store = weights_store(now, main, leases)
return acquire(store, permits_queue(queue, KEYS[4], ARGV[4], ARGV[6], now, us, ARGV[7]), redis.call('ZCARD', queue) > 0)
