-- Give acquisitions back, or a part of one, and hand that to those that wait.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue
-- ARGV as of release.lua; ARGV[2] of an owner what is kept (0: all is given back)
-- Reply as of release.lua; of an owner the weight that was held, its lease not over
-- Twice: what is kept is said, not what is given back, so the second run finds nothing more to give. What the first run served for
--   this process is found by those when they ask.
-- uses: clock, queue, verbs, weights
local main, leases, queue = KEYS[1], KEYS[2], KEYS[3]
local now, us = clock()
local store = weights_store(now, main, leases)
return release(store, queue_of(queue, ARGV[4], ARGV[5], now, us, ARGV[6]), true)
