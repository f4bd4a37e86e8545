-- The entry of a waiter, a member of its queue. All queues of ours have this one layout; package wait writes it and reads it in Go.
--
--   <version> <mode> <amount> <first> <stale> <leaves> <process> <owners> <rest>
--
--   version  1. A script drops an entry of another version, as it drops any text that it cannot read: the waiter enters again in its next poll
--   mode     x a lock that is a hash, p a lock that is a string, r a reader, w a writer, n permits
--   amount   how many permits; 1 for a lock
--   first    the lease that a hand-over writes, ms; for mode p how long a free lock is left to the waiter
--   stale    the entry counts as dead after so many ms without a request
--   leaves   the server's ms from which on the waiter is handed nothing, because its caller gives up; 0: not known
--   process  the id of the process, which is also the end of its channel of grants
--   owners   room for the owners that the waiter's context carries; - for none
--   rest     any bytes: the end of the owner, after the process; for permits their base, which is their owner, of 13 bytes, and the label

-- Returns what an entry says; nil: it is not one, or a number in it is too long to be counted with. No program of ours writes such a
-- text. Each release would fail at it, so it is taken out like the entry of a waiter that is gone.
local function read_entry(text)
  local mode, amount, first, stale, leaves, process, rest = string.match(text, '^1 (%l) (%d+) ([1-9]%d*) (%d+) (%d+) (%S+) %S+ (.*)$')
  if mode and #amount < 17 and math.max(#first, #stale, #leaves) < 16 then
    return {mode = mode, amount = amount + 0, first = first + 0, stale = stale + 0, leaves = leaves + 0, process = process, rest = rest,
      owner = mode == 'n' and string.sub(rest, 1, 13) or process .. rest}
  end
end
