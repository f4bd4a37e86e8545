-- Release acquisitions, or a part of one, and hand the weight over to waiters.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue  KEYS[4] shares
-- ARGV as of release.lua; ARGV[2] for an owner: the weight that it keeps (0: all is released)
-- Reply as of release.lua; for an owner the weight that was held with a lease that is not over
-- Twice: the request has the weight that is kept, not the released weight, so the second run releases nothing more.
--   Waiters of this process that the first run served find their weights when they poll.
-- uses: clock, queue, serve, verbs, weights
local main, leases, queue = KEYS[1], KEYS[2], KEYS[3]
local now, us = clock()
local store = weights_store(now, main, leases)
return release(store, permits_queue(queue, KEYS[4], ARGV[4], ARGV[5], now, us, ARGV[6]), true)
