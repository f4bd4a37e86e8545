-- Renew the leases of many weights; one call of the watchdog.
-- KEYS main, leases of each
-- ARGV its owner, which begins with its base, and lease in ms; lease 0: only look; -1: only look, and reply how long it lasts
-- Or, while a slot is being migrated, KEYS[1] one of the two  ARGV owner, lease, which: see package lease
-- Reply, for each: 1 renewed, or 1 + ms left; 0 it is not held; -2 a key is of another type; -3 one may not be read
-- Twice: a lease is raised to what is asked, never shortened, and only of what is still out and not over: a renewal that comes after
--   the release does nothing.
-- uses: clock, verbs, weights
return renew_all((clock()), 2, weights_leases)
