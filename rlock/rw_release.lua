-- Lower the count of a reader or of the writer, or end its hold; then wake whoever can acquire the lock now.
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] a reader's timeout key; without the others (a slot is being migrated)
--   they are left to their expiry
-- ARGV[1] field  ARGV[2] remaining count  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] 1: it is the writer's, 0: a reader's, which is Redisson's message too
-- ARGV[6] owner whose waiting new readers need not heed any more, and for how many ms it marked that, or ''
-- Reply: 1 still held by this owner; 2 released; 0 the owner held nothing
-- Twice: the remaining count is set, not subtracted; a second removal finds nothing and says 0. An owner is never used
--   again, so a late second run cannot meet a newer hold.
local lock, ends, timeout = KEYS[1], KEYS[2], KEYS[3]
local field, remaining, writer = ARGV[1], tonumber(ARGV[2]), ARGV[5] == '1'
if field == '' or not (remaining and remaining >= 0 and remaining % 1 == 0) then -- see fit
  return redis.error_reply('ERR owner, count or lease is nothing that can be asked for')
end
local status, tell = 0, false
if remaining > 0 then
  if redis.call('HEXISTS', lock, field) == 1 then
    -- HSET is refused when memory is full; the count only informs, so that is no reason to fail
    redis.pcall('HSET', lock, field, remaining)
    return 1
  end
elseif remove(lock, ARGV, 1, 1) > 0 then
  status = 2
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
  tell = true -- it went otherwise (expiry, DEL, failover), and nobody else told them
end
-- A user without rights on the channel can still release: waiters then poll.
if tell then
  redis.pcall(ARGV[4], ARGV[3], ARGV[5])
end
return status
