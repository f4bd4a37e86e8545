-- Lower the count of a reader or of the writer, or end its hold; then wake the waiters that can acquire the lock now.
-- uses: owners, rw, clock
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] a reader's timeout key; without the others (a slot is being migrated)
--   they are left to their expiry
-- ARGV[1] field  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] 1: it is the writer's, 0: a reader's, which is Redisson's message too
-- ARGV[6] owner whose waiting new readers need not heed any more, and for how many ms it marked that, or ''
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0. An owner is never used
--   again, so a late second run cannot find a newer hold.
local lock, ends, timeout = KEYS[1], KEYS[2], KEYS[3]
local field, remaining, writer = ARGV[1], tonumber(ARGV[2]), ARGV[5] == '1'
local status, tell = lower(lock, field, remaining), false
if status ~= 0 and status ~= 2 then
  return status
end
if remaining == 0 and ends then
  redis.call('ZREM', ends, field)
  if timeout then
    redis.call('DEL', timeout)
  end
end
if ARGV[6] ~= '' and ends then
  tell = redis.pcall('ZREM', ends, '!' .. ARGV[6]) == 1
end
if status == 2 then
  tell = settle(lock, ends, writer) or tell
  if ends and not emptied(lock) then
    local now = clock()
    tell = forget(lock, ends, now) or tell
    tell = not emptied(lock) and trim(lock, ends, now) or tell
  end
elseif redis.call('EXISTS', lock) == 0 then
  tell = true -- it ended otherwise (expiry, DEL, failover), and no message was sent
end
-- A user without rights on the channel can still release: waiters then poll.
if tell then
  redis.pcall(ARGV[4], ARGV[3], ARGV[5])
end
return status
