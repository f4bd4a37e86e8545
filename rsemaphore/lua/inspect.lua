-- Read a semaphore and its held permits, without changing them.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] shares
-- ARGV[1] how many held permits to read, those with the earliest ends first; 0: none; -1: all
-- ARGV[2…] ids to read, 16 bytes each, whether or not they are held
-- Reply {server ms, capacity ('': not known, the semaphore is not in use), the number of held permits whose leases are
--   not over; then for each id: the id, the end of its lease (0: not held), and "<number> <label>" (with_tenant); then,
--   with ARGV[1] -1, for each flow of a tenant: '', how many wait, the tenant}
-- Twice: reads only. The cost does not grow with the number of held permits that are not read.
-- uses: clock, ids, verbs
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
return inspect(ids_view((clock()), count, permits, notes), KEYS[4])
