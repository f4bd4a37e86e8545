-- Become a reader, or queue: see rwqueue.
-- uses: owners, raise, rw, rwqueue, queue, clock, entry, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4] this owner's timeout key
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] channel  ARGV[5] the owner of a write hold under which this owner reads, or ''
-- ARGV[6] a reading owner of the same process whose hold this reader can share, or ''
-- ARGV[7] PUBLISH or SPUBLISH  ARGV[8] grant channels, without the connection id  ARGV[9] entry to queue with, '' or
--   none The last three may be missing: see acquire
-- ARGV[10…] other owners of the same process, each with its lease, that become readers beside the first owner. Their
--   timeout keys are KEYS[4…]. The first owner holds the lock already, and its lease is not raised
-- Reply: server ms, one integer: the lock was free, the queue is empty, and the lock is granted with the full lease.
--   Otherwise {status, ms, server ms, …}:
--   1  granted, and 1 if no writer waits
--   5  the reader shares the hold of ARGV[6], and its own owner holds nothing; 1, because no writer waits
--   0  a writer holds the lock, or other waiters are first; ms left (-1: no end), ticket in the queue (0: none), and
--   the
--      holder: 1 if a holder is of another program, 2 and 3 as in acquire
--   2  too late; nothing is done
--   3  the owner under which, or beside which, others are to read holds nothing
-- Twice: a reader is granted the lock again, ends are only raised, and an owner in the queue keeps its ticket.
local lock, ends, queue, timeout = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
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
if not ends then
  return redis.error_reply('TRYAGAIN a read hold is more than one key, and their slot is being migrated')
end
if ARGV[5] == '' and not ARGV[10] and redis.call('EXISTS', lock, ends, queue) == 0 then -- free, and no waiters: the common case
  redis.call('HSET', lock, 'mode', 'read', owner, '1')
  local set = redis.pcall('PEXPIRE', lock, ARGV[2])
  if type(set) == 'table' then -- see set_expiry
    redis.call('DEL', lock)
    return set
  end
  redis.call('ZADD', ends, string.format('%.0f', now + lease), owner)
  redis.call('PEXPIRE', ends, ARGV[2])
  redis.call('SET', timeout, '1', 'PX', ARGV[2])
  return now
end
-- libraries
local us = time[1] * 1000000 + time[2]
local writer = ARGV[5] ~= '' and ARGV[5] .. ':write'
local joined = ARGV[6] ~= '' and ARGV[6] or nil
local channel, q = ARGV[4], queue_of(queue, ARGV[7], ARGV[8], now, us)
local entry = ARGV[9] ~= '' and ARGV[9] or nil

-- Makes the timeout key, in which Redisson looks for the reader's end, last for at least ms.
local function extend_timeout(ms)
  if redis.call('PTTL', timeout) < ms then
    redis.call('SET', timeout, '1', 'PX', digits(ms))
  end
end

-- Returns the reply to an owner that cannot read now. Otherwise returns nil and the mode: the owner can read, or reads.
local function refuse_reader(mode)
  local is_free, any_expired, only_redisson
  if mode then
    is_free, any_expired = remove_expired(lock, ends, now)
  end
  if is_free then
    send(q.publish, channel, '1')
    mode = redis.call('HGET', lock, 'mode')
  end
  if not mode and redis.call('EXISTS', lock) == 1 then -- the key is a lock of another kind
    return {0, redis.call('PTTL', lock), now, 0, 0}
  end
  local has_queue = redis.call('EXISTS', queue) == 1
  local first = has_queue and next_writer(q, entry)
  local is_closed = mode == 'read' and (first or is_closed_to_readers(q, channel))
  if joined and mode == 'read' and not is_closed and redis.call('HEXISTS', lock, joined) == 1 and
      not (any_expired and hold_ended(lock, ends, joined, now)) then -- remove_expired may have left it
    if entry then
      dequeue(q, entry)
      redis.call('DEL', timeout)
    end
    return {5, redis.call('PTTL', lock), now, 1, 0}
  end
  local ms_reserved = has_queue and reservation_left(q, 'open')
  if mode ~= 'write' and not first and not is_closed and not ms_reserved and not (has_queue and others_queued(q, entry)) then
    return nil, mode
  end
  local ticket, any_unnotified = 0, false
  if entry then
    local waiter = read_entry(entry)
    extend_timeout(waiter.first + waiter.stale)
    ticket = enqueue_rw(q, entry, 0, mode)
    has_queue = true
  end
  if has_queue then
    any_unnotified, only_redisson = serve_phases(lock, ends, q, channel, entry)
    if any_expired and only_redisson then -- the expired holds were the last of this library: see serve_queue
      hint_rw(q)
    end
  end
  mode = redis.call('HGET', lock, 'mode')
  if redis.call('HEXISTS', lock, owner) == 1 then
    return nil, mode
  end
  if mode == 'write' or is_closed or ms_reserved or not any_unnotified and others_queued(q, entry) then
    return {0, ms_reserved or redis.call('PTTL', lock), now, ticket, mode and foreign_flag(lock, ends, mode, now) or 0}
  end
  return nil, mode
end

-- Other owners may read while a reader of their process does, because a queued writer waits for that reader in any
-- case.
if ARGV[10] then
  for i = 10, #ARGV, 2 do
    local refusal = validation_error(ARGV[i], tonumber(ARGV[i + 1]))
    if refusal then
      return refusal
    end
  end
  local first = redis.pcall('HGET', lock, 'mode')
  if first ~= 'read' or hold_ended(lock, ends, owner, now) then
    return {3, 0, now}
  end
  for i = 10, #ARGV, 2 do
    local ms = tonumber(ARGV[i + 1])
    redis.call('HSET', lock, ARGV[i], '1') -- the first write: the server refuses it if its memory is full
    raise_expiry(lock, ms)
    raise_end(ends, ARGV[i], now + ms, now)
    if redis.call('PTTL', KEYS[i / 2 - 1]) < ms then
      redis.call('SET', KEYS[i / 2 - 1], '1', 'PX', ARGV[i + 1])
    end
  end
  return {1, 0, now, 0, 0}
end

local held = redis.pcall('HMGET', lock, 'mode', owner, writer or '')
if held.err then -- see rw_write
  local left = redis.call('PTTL', lock)
  local holder = not writer and string_holder(lock, left) or redis.call('HMGET', lock, 'mode')
  return {0, left, now, 0, holder}
end
local mode, is_held = held[1], held[2]
if writer and not is_held then
  local ends_at = redis.call('ZSCORE', ends, writer)
  if not held[3] or ends_at and expired(ends_at, now) then
    return {3, 0, now}
  end
  local left = redis.call('PTTL', lock)
  if not ends_at and left >= 0 then -- until now the expiry of the lock was the writer's end
    raise_end(ends, writer, now + left, now)
  end
elseif not is_held then
  local reply
  reply, mode = refuse_reader(mode)
  if reply then
    return reply
  end
end
-- ZCARD ends the script at a key of another type before anything is written. HSET is the first write: the server
-- refuses it if its memory is full.
local has_queue = redis.call('ZCARD', queue) > 0
redis.call('ZCARD', ends)
if not mode then
  redis.call('HSET', lock, 'mode', 'read', owner, '1')
  set_expiry(lock, lease)
  remove_ends(ends) -- the ends of a lock that was deleted
  if has_queue then -- no script has seen the end of the last phase if a reader of Redisson's was the last, or a lease ended
    set_instant(q, 'readfrom', now)
  end
else
  if not is_held then
    redis.call('HSET', lock, owner, '1')
  end
  raise_expiry(lock, lease)
end
raise_end(ends, owner, now + lease, now)
extend_timeout(lease)
local no_writer = 1
if has_queue then
  if entry then
    dequeue(q, entry)
  end
  no_writer = next_writer(q) and 0 or 1
end
return {1, lease, now, no_writer, 0}
