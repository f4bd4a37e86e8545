-- Become a reader, or stand in line: see rwqueue.
-- uses: owners, raise, rw, rwqueue, queue, clock, entry, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4] this owner's timeout key
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] channel  ARGV[5] the owner of a write hold under which it reads, or ''
-- ARGV[6] an owner of the same process that reads, whose hold would do as well, or ''
-- ARGV[7] PUBLISH or SPUBLISH  ARGV[8] grant channels, without the connection id  ARGV[9] entry to queue with, or '' or none
--   The last three may not be sent: see acquire
-- ARGV[10…] other owners of the same process, each with its lease, that are to read beside the first; KEYS[4…] are their timeout keys
--   then. The first holds the lock already, and is not raised
-- Reply: server ms, one integer: it was free, the queue is empty, and it is granted with the lease in full. Otherwise
--   {status, ms, server ms, …}:
--   1 granted, or 5 the other owner's hold does and this owner has nothing, each with 1 if no writer waits; 0 there is a
--   writer, or others come first, ms left of that (-1 without end), ticket in the queue (0: none), 1 if a holder is not one
--   of ours, and 2 more as in acquire; 2 too late, nothing done; 3 the owner under which it reads, or beside which
--   others are to, holds nothing
-- Twice: an owner that reads is granted that again, ends are only ever raised, and an owner in line keeps its ticket.
local lock, ends, queue, timeout = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, notafter = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function: see acquire.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
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

-- Have the end that Redisson looks for be so many ms from now at least.
local function extend_timeout(ms)
  if redis.call('PTTL', timeout) < ms then
    redis.call('SET', timeout, '1', 'PX', digits(ms))
  end
end

-- The reply to one that cannot read now; or nil, it can or does, and the mode.
local function refuse_reader(mode)
  local is_free, any_expired, only_redisson
  if mode then
    is_free, any_expired = remove_expired(lock, ends, now)
  end
  if is_free then
    send(q.publish, channel, '1')
    mode = redis.call('HGET', lock, 'mode')
  end
  if not mode and redis.call('EXISTS', lock) == 1 then -- it is another kind's
    return {0, redis.call('PTTL', lock), now, 0, 0}
  end
  local has_queue = redis.call('EXISTS', queue) == 1
  local first = has_queue and next_writer(q, entry)
  local is_closed = mode == 'read' and (first or is_closed_to_readers(q, channel))
  if joined and mode == 'read' and not is_closed and redis.call('HEXISTS', lock, joined) == 1 and
      not (any_expired and hold_ended(lock, ends, joined, now)) then -- forget may have left it
    if entry then
      dequeue(q, entry)
      redis.call('DEL', timeout)
    end
    return {5, redis.call('PTTL', lock), now, 1, 0}
  end
  local rest = has_queue and reservation_left(q, 'open')
  if mode ~= 'write' and not first and not is_closed and not rest and not (has_queue and others_queued(q, entry)) then
    return nil, mode
  end
  local ticket, unnotified = 0, false
  if entry then
    local waiter = read_entry(entry)
    extend_timeout(waiter.first + waiter.stale)
    ticket = enqueue_rw(q, entry, 0, mode)
    has_queue = true
  end
  if has_queue then
    unnotified, only_redisson = serve_phases(lock, ends, q, channel, entry)
    if any_expired and only_redisson then -- the holds that are over were the last of ours: see serve_queue
      hint_rw(q)
    end
  end
  mode = redis.call('HGET', lock, 'mode')
  if redis.call('HEXISTS', lock, owner) == 1 then
    return nil, mode
  end
  if mode == 'write' or is_closed or rest or not unnotified and others_queued(q, entry) then
    return {0, rest or redis.call('PTTL', lock), now, ticket, mode and foreign_flag(lock, ends, mode, now) or 0}
  end
  return nil, mode
end

-- Others may read wherever one of their process does: a writer that is queued waits for that one.
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
    redis.call('HSET', lock, ARGV[i], '1') -- the first write, which memory that is full refuses
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
  if not ends_at and left >= 0 then -- until now the writer's end was the lock's
    raise_end(ends, writer, now + left, now)
  end
elseif not is_held then
  local reply
  reply, mode = refuse_reader(mode)
  if reply then
    return reply
  end
end
-- A key of another type has to refuse the script while nothing has changed. HSET is the first write, which memory that is full
-- refuses.
local has_queue = redis.call('ZCARD', queue) > 0
redis.call('ZCARD', ends)
if not mode then
  redis.call('HSET', lock, 'mode', 'read', owner, '1')
  set_expiry(lock, lease)
  remove_ends(ends) -- of a lock that was deleted
  if has_queue then -- the last phase may have ended without a word: Java's reader was the last, or a lease has ended
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
