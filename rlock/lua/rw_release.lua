-- End the hold of a reader or of the writer. Then serve the queue, or wake the waiters that can acquire the lock now.
-- uses: owners, rw, rwqueue, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4] a reader's timeout key. While a slot is being
--   migrated,
--   KEYS[1] alone: the other keys expire, and no waiter is served
-- ARGV[1] field  ARGV[2] channel  ARGV[3] 1: the writer's hold, 0: a reader's; this is also Redisson's message
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] grant channels, without the connection id  ARGV[6] entry of this owner that may
--   be in the queue, '' or none. The last three may be missing: see acquire
-- Reply: 1 released; 2 released, and the caller should read the ends of Redisson's readers that are left: see trim; 0
--   the owner held nothing
-- Twice: a second removal finds nothing, and replies 0. An owner is never used again, so a late second run cannot find
--   a newer hold.
local lock, ends, queue, timeout = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, channel, side, publish = ARGV[1], ARGV[2], ARGV[3], ARGV[4] or 'PUBLISH'
if field == '' then -- see validation_error; the common case makes no function
  return redis.error_reply('ERR owner or lease is not valid')
end
local released = redis.call('HDEL', lock, field)
if timeout then -- a reader always has an end
  redis.pcall('ZREM', ends, field)
end
-- The common case: the lock had no other hold, and the queue is empty.
if released == 1 and ends and redis.pcall('HLEN', lock) == 1 and redis.pcall('EXISTS', ends, queue) == 0 then
  redis.call('DEL', lock, timeout or lock)
  if publish == 'SPUBLISH' then
    redis.pcall('SPUBLISH', channel, side)
  else
    redis.pcall('PUBLISH', channel, side)
  end
  return 1
end
-- libraries
if timeout then
  redis.pcall('DEL', timeout)
elseif ends then
  redis.pcall('ZREM', ends, field)
end
local now, us = clock()
local q, entry = queue_of(queue, publish, ARGV[5], now, us), ARGV[6] or ''
local left_score -- the score of an entry that is removed: see serve_queue
if released == 0 then
  left_score = ends and entry ~= '' and tonumber((redis.pcall('ZSCORE', queue, entry))) or math.huge
end
if ends and entry ~= '' then
  redis.pcall('ZREM', queue, entry, stamp_name(q, read_entry(entry)))
end
local writer, must_publish, downgraded, has_unknown_ends = side == '1', false, false, false
if released == 1 then
  must_publish = settle_removal(lock, ends, writer)
  downgraded = writer and not is_missing(lock)
  if ends and not is_missing(lock) then
    local is_free = remove_expired(lock, ends, now)
    must_publish = is_free or must_publish
    if not (is_free and is_missing(lock)) then
      local free
      free, has_unknown_ends = trim(lock, ends, now)
      must_publish = free or must_publish
    end
  end
elseif is_missing(lock) then
  must_publish = true -- after an expiry, DEL or failover no message was sent
end
if ends and not serve_queue(lock, ends, q, channel, released == 1, downgraded, left_score) then
  must_publish = downgraded -- a lock that was handed over is not free; but Redisson's readers can acquire a downgraded one
end
-- A user without rights on the channel can still release: waiters then poll.
if must_publish then
  send(publish, channel, side)
end
return has_unknown_ends and 2 or released
