-- Have waiters look at a lock that its owner has left to the end of its lease (see keep): that is sooner than they expect.
-- uses: send
-- KEYS[1] the lock's queue, of any kind
-- ARGV[1] PUBLISH or SPUBLISH  ARGV[2] channel of releases  ARGV[3] grant channels, without the connection id
-- Reply: how many were notified by name
-- Twice: they look once more.
-- The first in line is notified, and of a read-write lock the first reader and the first writer. When it has had the lock, its release
-- tells the next. Who stands in no line (Redisson's waiters, ours that hear no grants) hears of it as of a release.
local publish, channel, grants = ARGV[1], ARGV[2], ARGV[3]
local WRITERS = '3000000000000000' -- BAND in rwqueue.lua
local notified = 0

local function tell(owner)
  if owner then
    notified = notified + 1
    send(publish, grants .. string.sub(owner, 1, 36), '0 0 ' .. owner)
  end
end

local head = redis.pcall('LINDEX', KEYS[1], 0)
if type(head) == 'string' then -- Redisson's list, of a fair lock: each listens for itself
  tell(head)
  send(publish, channel .. ':' .. head, '0')
  return notified
end
for _, range in ipairs({{'0', '(' .. WRITERS}, {WRITERS, '+inf'}}) do
  local first = redis.pcall('ZRANGE', KEYS[1], range[1], range[2], 'BYSCORE', 'LIMIT', 0, 1)[1]
  tell(first and string.match(first, '^%S+'))
end
send(publish, channel, '0')
return notified
