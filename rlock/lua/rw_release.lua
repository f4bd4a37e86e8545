-- Lower the count of a reader or of the writer, or end its hold; then serve the line, or wake the waiters that can acquire the
-- lock now.
-- uses: owners, rw, rwqueue, clock
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4] a reader's timeout key; the lock alone (a slot is being
--   migrated) does: the others are left to their expiry, and nobody is served
-- ARGV[1] field  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] 1: it is the writer's, 0: a reader's, which is Redisson's message too
-- ARGV[6] grant channels, without the connection id  ARGV[7] entry of this owner that may be in line, or ''
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0. An owner is never used
--   again, so a late second run cannot find a newer hold.
local lock, ends, queue, timeout = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, remaining, writer = ARGV[1], tonumber(ARGV[2]), ARGV[5] == '1'
local channel, publish = ARGV[3], ARGV[4]
local status, tell = lower(lock, field, remaining), false
if status ~= 0 and status ~= 2 then
  return status
end
if ends then
  if remaining == 0 then
    redis.pcall('ZREM', ends, field)
    if timeout then
      redis.pcall('DEL', timeout)
    end
  end
  if ARGV[7] ~= '' then
    redis.pcall('ZREM', queue, ARGV[7], '!' .. string.match(ARGV[7], '^%S+'))
  end
end
local now, us = clock()
local downgraded = false
if status == 2 then
  tell = settle(lock, ends, writer)
  downgraded = writer and not emptied(lock)
  if ends and not emptied(lock) then
    tell = forget(lock, ends, now) or tell
    tell = not emptied(lock) and trim(lock, ends, now) or tell
  end
elseif emptied(lock) then
  tell = true -- it ended otherwise (expiry, DEL, failover), and no message was sent
end
if ends and not pass_on(lock, ends, queue, publish, channel, ARGV[6], now, us, status == 2, downgraded) then
  tell = downgraded -- a lock that is handed on is not free, but Redisson's readers can come in
end
-- A user without rights on the channel can still release: waiters then poll.
if tell then
  redis.pcall(publish, channel, ARGV[5])
end
return status
