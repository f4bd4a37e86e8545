-- Look at a semaphore of weights, and at what is out, without changing it.
-- KEYS[1] main  KEYS[2] leases
-- ARGV as of inspect.lua
-- Reply as of inspect.lua; an acquisition that is not out has the text ''
-- Twice: reads only.
-- uses: clock, verbs, weights
local main, leases = KEYS[1], KEYS[2]
return inspect(weights_view((clock()), main, leases))
