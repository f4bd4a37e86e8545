-- Set the capacity, whatever it was, and serve waiters.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue  KEYS[4] shares
-- ARGV as of resize.lua; ARGV[7] is not used, because Redisson has no weights
-- Reply as of resize.lua
-- Twice: as resize.lua.
-- uses: clock, queue, serve, verbs, weights
local main, leases, queue = KEYS[1], KEYS[2], KEYS[3]
local now, us = clock()
local store = weights_store(now, main, leases)
return resize(store, permits_queue(queue, KEYS[4], ARGV[6], ARGV[10], now, us, ARGV[11]))
