-- Raise the leases of permits by their ids, all or none.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV[1] lease, ms  ARGV[2…] ids, 16 bytes each
-- Reply: 1 all of them are held, for at least the lease; 0 not all are held, and nothing is changed
-- Twice: a lease is raised to the wanted lease, never shortened, and only of an id that is held and not over. So a run
--   that comes after the release does nothing.
-- uses: clock, ids, verbs
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
return extend(ids_leases((clock()), count, permits, notes))
