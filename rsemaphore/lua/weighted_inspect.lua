-- Read a semaphore of weights and its held acquisitions, without changing them.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] shares
-- ARGV as of inspect.lua
-- Reply as of inspect.lua; an acquisition that is not held has the text ''
-- Twice: reads only.
-- uses: clock, verbs, weights
local main, leases = KEYS[1], KEYS[2]
return inspect(weights_view((clock()), main, leases), KEYS[3])
