-- Raise the leases of weights by their ids, all or none.
-- KEYS[1] main  KEYS[2] leases
-- ARGV as of extend.lua
-- Reply as of extend.lua
-- Twice: as extend.lua.
-- uses: clock, verbs, weights
local main, leases = KEYS[1], KEYS[2]
return extend(weights_leases((clock()), main, leases))
