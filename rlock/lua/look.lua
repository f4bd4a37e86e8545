-- Notify waiters of a lock that was kept until the end of a lease (see keep.lua), because it may end earlier than they
-- expect.
-- uses: entry, queue, send
-- KEYS[1] the lock's queue, of any kind
-- ARGV[1] PUBLISH or SPUBLISH  ARGV[2] channel of releases  ARGV[3] grant channels, without the connection id
-- Reply: the number of waiters that were notified by name
-- Twice: the waiters send one more request.
-- The script notifies the first waiter in the queue; for a read-write lock the first reader and the first writer. The
-- release of that waiter notifies the next, also if the waiter leaves before the lock is free:
--
--   waiters B, C                 server                          holder A
--   request: 30 s left --------> queue: B, C
--                                ends in 10 ms; "0 0 B" to B <-- UnlockAfter: keep, look
--   B requests: 8 ms left
--   B gives up ----------------> "0 0 C" to C
--   C requests: 4 ms left
--
-- A Plain lock and a read-write lock do not show that they are kept: there C polls. Waiters without an entry
-- (Redisson's, and ours that receive no grants) get the message of a release.
local publish, channel, grants = ARGV[1], ARGV[2], ARGV[3]
local notified = 0

local function notify(owner)
  if owner then
    notified = notified + 1
    send(publish, grants .. string.sub(owner, 1, 36), '0 0 ' .. owner)
  end
end

local head = redis.pcall('LINDEX', KEYS[1], 0)
if type(head) == 'string' then -- Redisson's list, for a fair lock: each waiter has a channel of its own
  notify(head)
  send(publish, channel .. ':' .. head, '0')
  return notified
end
for _, range in ipairs({{'(0', '(' .. FIRST_WRITER}, {FIRST_WRITER, '+inf'}}) do
  local first = redis.pcall('ZRANGE', KEYS[1], range[1], range[2], 'BYSCORE', 'LIMIT', 0, 1)[1]
  local waiter = first and read_entry(first)
  notify(waiter and waiter.owner)
end
send(publish, channel, '0')
return notified
