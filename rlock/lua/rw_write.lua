-- Become the writer, or queue: see rwqueue.
-- uses: owners, raise, rw, rwqueue, queue, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue. While a slot is being migrated, KEYS[1] alone: expired holds
--   are not removed, and no waiter queues
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] channel  ARGV[5] PUBLISH or SPUBLISH
-- ARGV[6] grant channels, without the connection id  ARGV[7] entry to queue with, '' or none
--   The last three may be missing: see acquire
-- ARGV[8] an owner of the same process whose hold is transferred to this owner, or none. Then nothing else is done: see
--   transfer_hold in lib/acquire.lua
-- Reply: server ms, one integer: the lock was free, the queue is empty, and the lock is granted with the full lease.
--   Otherwise {status, ms, server ms, …}:
--   1  granted, and 1 if the queue is empty
--   0  held, or other waiters are first; ms left (-1: no end), ticket in the queue (0: none), and the holder: 1 if a
--      holder is of another program, 2 and 3 as in acquire
--   2  too late; nothing is done
--   3  the owner of ARGV[8] does not hold the lock
--   6  the owner of ARGV[8] also reads, or the ends cannot be reached
-- Twice: a writer is granted the lock again. Leases are only raised, and never add up. An owner in the queue keeps its
--   ticket.
local lock, ends, queue = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function: see acquire.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is not valid')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local field = owner .. ':write'
if ends and not ARGV[8] and redis.call('EXISTS', lock, ends, queue) == 0 then -- free, and no waiters: the common case
  redis.call('HSET', lock, 'mode', 'write', field, '1')
  local set = redis.pcall('PEXPIRE', lock, ARGV[2])
  if type(set) == 'table' then -- see set_expiry
    redis.call('DEL', lock)
    return set
  end
  return now
end
-- libraries
local us = time[1] * 1000000 + time[2]
local channel, q = ARGV[4], queue_of(queue, ARGV[5], ARGV[6], now, us)
local entry = queue and ARGV[7] ~= '' and ARGV[7] or nil

-- Raises the lease of a hold that exists, or was just handed over with its short lease. Returns the reply.
local function raise_write_hold()
  local ends_at = ends and redis.call('ZSCORE', ends, field)
  raise_expiry(lock, lease)
  if ends_at then
    raise_end(ends, field, now + lease, now)
  end
  if entry then
    dequeue(q, entry)
  end
  return {1, lease, now, 0, 0}
end

if ends then
  redis.call('ZCARD', ends) -- ends the script at a key of another type before anything is written
end
local held = redis.pcall('HMGET', lock, 'mode', field)
if held.err then -- not a hash: see acquire. The owner does not queue, because a lock that is a string does not serve this queue
  local left = redis.call('PTTL', lock)
  return {0, left, now, 0, string_holder(lock, left) or redis.call('HMGET', lock, 'mode', field)}
end
local mode = held[1]
if held[2] then
  return raise_write_hold()
end
if ARGV[8] then
  local from = ARGV[8] .. ':write'
  if redis.call('HEXISTS', lock, from) == 0 then
    return {3, 0, now}
  elseif not ends or redis.call('HLEN', lock) ~= 2 then -- the fields of the mode and of the writer
    return {6, 0, now}
  end
  redis.call('HSET', lock, field, '1') -- the first write: the server refuses it if its memory is full
  local set = redis.pcall('PEXPIRE', lock, lease)
  redis.call('HDEL', lock, type(set) == 'table' and field or from)
  redis.call('ZREM', ends, from)
  return type(set) == 'table' and set or {1, lease, now, 0, 0}
end
local is_free, any_expired
if mode and ends then
  is_free, any_expired = remove_expired(lock, ends, now)
end
if is_free then
  send(q.publish, channel, '1')
  mode = redis.call('HGET', lock, 'mode')
end
is_free = not mode and redis.call('EXISTS', lock) == 0 -- otherwise the key is a lock of another kind
local has_queue = queue and redis.call('EXISTS', queue) == 1
local ms_reserved = has_queue and reservation_left(q, 'open')
if not is_free or ms_reserved or has_queue and others_queued(q, entry) then
  local ticket, any_unnotified, only_redisson = 0, false, false
  if entry and (mode or is_free) then
    ticket = enqueue_rw(q, entry, WRITERS, mode)
    has_queue = true
  end
  if has_queue then
    any_unnotified, only_redisson = serve_phases(lock, ends, q, channel, entry)
    if any_expired and only_redisson then -- the expired holds were the last of this library: see serve_queue
      hint_rw(q)
    end
  end
  if redis.call('HEXISTS', lock, field) == 1 then
    return raise_write_hold()
  end
  mode = redis.call('HGET', lock, 'mode')
  if ms_reserved or redis.call('EXISTS', lock) == 1 or not any_unnotified and others_queued(q, entry) then
    return {0, ms_reserved or redis.call('PTTL', lock), now, ticket, queue and mode and foreign_flag(lock, ends, mode, now) or 0}
  end
end
redis.call('HSET', lock, 'mode', 'write', field, '1') -- the first write: the server refuses it if its memory is full
set_expiry(lock, lease)
if ends then
  remove_ends(ends) -- the ends of a lock that was deleted
end
if has_queue then
  count_writer(q, entry, get_field(q, 'writes') or 0)
end
return {1, lease, now, has_queue and 0 or 1, 0}
