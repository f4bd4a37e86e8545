-- The entry of a waiter: a member of its queue. All our queues have this layout. Package wait writes and reads entries
-- in Go.
--
--   <version> <mode> <amount> <first> <stale> <leaves> <process> <owners> <rest>
--
--   version  1. A script reads an entry of a later version by these same fields, which keep their meaning; a later
--            version adds to owners
--   mode     x a lock that is a hash, p a lock that is a string, r a reader, w a writer, n permits, t permits of a
--            tenant
--   amount   the number of permits; 1 for a lock
--   first    the lease that a hand-over writes, ms; for mode p how long a free lock is reserved for the waiter
--   stale    the entry counts as dead after this many ms without a request
--   leaves   the server's ms from which on the waiter is handed nothing, because its caller gives up; 0: not known
--   process  the id of the process, which is also the end of its channel of grants
--   owners   room for more, such as the owners that the waiter's context carries; - for none. Scripts ignore it
--   rest     any bytes: the end of the owner, after the process; for permits their base of 13 bytes, which is their
--            owner, then the label; for a tenant's permits "<weight> <max> <priority> <bytes of tenant> <tenant>" is
--            before the label

-- Returns the fields of an entry; nil if the text is no entry, or if a number in it is too long for Lua's arithmetic.
-- No program of ours writes such a text. Each release would fail at it, so the caller drops it like the entry of a dead
-- waiter.
local function read_entry(text)
  local mode, amount, first, stale, leaves, process, rest = string.match(text, '^%d+ (%l) (%d+) ([1-9]%d*) (%d+) (%d+) (%S+) %S+ (.*)$')
  if mode and #amount < 17 and #first < 16 and #stale < 16 and #leaves < 16 then
    return {mode = mode, amount = amount + 0, first = first + 0, stale = stale + 0, leaves = leaves + 0, process = process, rest = rest,
      owner = (mode == 'n' or mode == 't') and string.sub(rest, 1, 13) or process .. rest}
  end
end
