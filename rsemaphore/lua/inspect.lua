-- Look at a semaphore, and at what is out, without changing it.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes
-- ARGV[1] how many to look at of those that are out, first those whose leases end first; 0: none; -1: all
-- ARGV[2…] ids to look at, 16 bytes each, whether or not they are out
-- Reply {server ms, capacity ('': not known, it is not in use), how many are out, but for those whose leases are over; then of each id, the end
--   of its lease (0: it is not out) and "<number> <label>"}
-- Twice: reads only. Its cost does not grow with what is out that it is not to look at.
-- uses: clock, ids, verbs
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
return inspect(ids_view((clock()), count, permits, notes))
