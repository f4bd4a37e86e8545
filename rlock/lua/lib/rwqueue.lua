-- The policy of the queue (queue.lua) of a read-write lock's waiters: phases. "!open" is a reservation, as in
-- handover.lua. The other fields have the state of the phases:
--   !readfrom  the instant at which the readers' phase began         !lastread  the length of the last readers' phase
--   !phase     the instant at which the writers' phase began         !writes    the number of writers in this phase
--   !filled    the instant when readers last joined readers while a writer waited
--   !rest      readers of this phase are still queued
-- Phases begin with the first owner that has to wait: an uncontended lock has no queue.
--
-- When the last reader leaves, the first writer is next. When a writer leaves, the next writer is next if all of these
-- are true: the writers' phase is younger than the readers' phase before it, it is younger than MAX_PHASE, and it has
-- had fewer than MAX_WRITES writers. Otherwise all queued readers are next. The same is true when a writer continues
-- as a reader.
--
-- While readers hold the lock, a new reader is admitted only if no writer waits. So one reader that hangs keeps out a
-- writer, and the writer would keep out all other readers. Hence the refill: queued readers are admitted beside the
-- reading ones when the first writer has waited for R, 2R, 4R, ... R is the writer's poll. Doubling limits the writer's
-- wait (TestReaders_OneHangs_OthersAreAdmitted).
--
-- The state of a waiting reader:
--
-- * The timeout key is Redisson's end of a reader. The script that grants may not write it, because it is not a KEY
--   of that script. Without the timeout key the next unlock of a Java reader deletes a granted reader with the hash,
--   and a writer acquires although that reader reads. So the waiter makes the key before it queues, and with each poll
--   it extends the key to outlast the entry by the lease.
-- * A process that was stopped or cut off, and still has its subscription, is passed over after it has sent no
--   request for "stale after". Until then its waiting writer keeps readers out.
-- uses: owners, raise, rw, handover, queue, clock, entry, listeners, send

local MAX_WRITES = 16
local MAX_PHASE = 200 -- ms
local MAX_READERS = 256 -- the readers that one script admits
local READERS_TURN = 200 -- ms after which readers make room for Redisson's waiters
local REFILL_PAUSE = 20 -- ms between refills while all readers are Redisson's

-- Puts a waiter into the queue, or stamps its entry. Returns its score.
local function enqueue_rw(q, entry, from, mode)
  local score, is_new = enqueue(q, entry, from)
  if is_new and mode == 'read' and not get_field(q, 'readfrom') then
    set_instant(q, 'readfrom', q.now)
  elseif is_new and mode == 'write' and not get_field(q, 'writes') then
    set_field(q, 'writes', 1)
    set_instant(q, 'phase', q.now)
  end
  return score
end

-- Returns the living ones of the first readers in the queue, {entry, score, ...}, and whether there may be more
-- readers. Dead readers are removed.
local function live_readers(q, me)
  local list = redis.call('ZRANGE', q.key, '(0', '(' .. FIRST_WRITER, 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, MAX_READERS)
  local alive, dropped = {}, {}
  for i = 1, #list, 2 do
    local waiter = read_entry(list[i])
    if list[i] == me or waiter and is_alive(q, waiter, tonumber(list[i + 1])) then
      alive[#alive + 1] = list[i]
      alive[#alive + 1] = tonumber(list[i + 1])
    else
      dropped[#dropped + 1], dropped[#dropped + 2] = list[i], stamp_name(q, waiter)
    end
  end
  if #dropped > 0 then
    redis.call('ZREM', q.key, unpack(dropped))
  end
  return alive, #list == 2 * MAX_READERS
end

-- Returns the ms at which readers may next join the reading ones, while a writer with that score and entry waits. If
-- only_redisson is set, all reading owners are Redisson's. Redisson's new readers do not wait for our writers, so a
-- long pause would keep out only the readers of this library.
local function next_refill_at(q, writer, score, only_redisson)
  local queued_at, filled_at = score % WRITERS / 1000, get_field(q, 'filled') or 0
  if only_redisson then
    return math.min(math.max(filled_at, get_field(q, 'readfrom') or 0), q.now) + REFILL_PAUSE
  end
  local poll = writer.stale * 2 / 5
  return queued_at + math.max(poll, 2 * (math.min(filled_at, q.now) - queued_at))
end

-- Returns how many reading owners have no end in ends: these are Redisson's readers. It also returns the number of all
-- owners.
local function count_redissons(lock, ends, now)
  local others = redis.call('HLEN', lock) - 1
  return others - redis.call('ZCOUNT', ends, digits(now), '+inf'), others
end

local function only_redissons(lock, ends, now)
  local redissons, owners = count_redissons(lock, ends, now)
  return redissons == owners
end

-- Makes the waiter of an entry a reading holder, like acquire does, but with the entry's short lease. It does not
-- notify the waiter's process.
local function admit_reader(lock, ends, entry, now)
  local waiter = read_entry(entry)
  redis.call('HSET', lock, 'mode', 'read', waiter.owner, 1)
  if redis.call('PTTL', lock) == -1 and redis.call('HLEN', lock) == 2 then
    set_expiry(lock, waiter.first)
  else
    raise_expiry(lock, waiter.first)
  end
  raise_end(ends, waiter.owner, now + waiter.first, now)
end

-- Admits readers. Returns whether a reader could not be notified, and so is still queued.
local function serve_readers(lock, ends, q, readers, has_more, me)
  local any_unnotified = false
  for i = 1, #readers, 2 do
    admit_reader(lock, ends, readers[i], q.now)
  end
  for i = 1, #readers, 2 do
    local waiter = read_entry(readers[i])
    if readers[i] == me or notify(q, waiter, readers[i + 1], waiter.first) then
      dequeue(q, readers[i], waiter)
    else
      redis.call('HDEL', lock, waiter.owner)
      redis.call('ZREM', ends, waiter.owner)
      any_unnotified = true
    end
  end
  if redis.call('HLEN', lock) <= 1 then
    redis.call('DEL', lock)
  end
  set_field(q, 'writes', 0)
  if has_more then
    set_instant(q, 'rest', q.now)
  else
    redis.call('ZREM', q.key, '!rest')
  end
  return any_unnotified
end

-- Counts a writer that follows another writer, and removes its entry, if it has one. The count is written first: if
-- removing the entry emptied the set, a later write would make the set anew, without an expiry. waiter: as in dequeue.
local function count_writer(q, entry, writes, waiter)
  if writes == 0 then
    set_instant(q, 'phase', q.now)
  end
  set_field(q, 'writes', writes + 1)
  if entry then
    dequeue(q, entry, waiter)
  end
end

-- Makes the first writer the holder of a free lock. Returns whether the writer could not be notified.
local function serve_writer(lock, q, entry, score, writes, me)
  local waiter = read_entry(entry)
  redis.call('HSET', lock, 'mode', 'write', waiter.owner .. ':write', 1)
  set_expiry(lock, waiter.first)
  if entry ~= me and not notify(q, waiter, score, waiter.first) then
    redis.call('DEL', lock)
    return true
  end
  count_writer(q, entry, writes, waiter)
  return false
end

-- Ends the readers' phase, and records its length.
local function end_reading(q, began_at)
  if began_at then
    set_field(q, 'lastread', math.max(q.now - began_at, 0))
    redis.call('ZREM', q.key, '!readfrom')
  end
end

-- Reports whether new readers are refused although no writer of this library waits: readers have held the lock for
-- READERS_TURN, and a waiter of Redisson's waits. It could not acquire the lock while readers of this library keep
-- coming.
local function is_closed_to_readers(q, channel)
  if not java_waits(q.publish, channel) then
    return false
  end
  local began_at = get_field(q, 'readfrom')
  if not began_at then
    set_instant(q, 'readfrom', q.now)
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
    return false
  end
  return q.now - began_at >= READERS_TURN
end

-- Returns the first living writer in the queue, as next_waiter does.
local function next_writer(q, me)
  return next_waiter(q, FIRST_WRITER, me)
end

-- Serves the next waiters of a queue that exists. me: the entry of the request's sender, or nil; the reply tells the
-- sender of its grant. has_turned: the writer has become a reader, so a readers' phase begins. Returns true if a waiter
-- could not be notified, and nil if no waiter can be served: a writer holds the lock, or the lock is reserved. The
-- second result reports whether the first waiter waits for readers of Redisson's only.
local function serve_phases(lock, ends, q, channel, me, has_turned)
  local mode, now = redis.call('HGET', lock, 'mode'), q.now
  if reservation_left(q, 'open') or mode == 'write' or not mode and redis.call('EXISTS', lock) == 1 then
    return nil
  end
  local entry, score, writer = next_writer(q, me)
  if mode then
    local is_due, only_redisson = has_turned, false
    if has_turned then
      set_instant(q, 'readfrom', now)
    elseif entry then
      only_redisson = only_redissons(lock, ends, now)
      is_due = get_field(q, 'rest') or next_refill_at(q, writer, score, only_redisson) <= now
    elseif is_closed_to_readers(q, channel) then
      only_redisson = only_redissons(lock, ends, now)
    else
      is_due = true
    end
    if is_due then
      local readers, has_more = live_readers(q, me)
      if #readers > 0 then
        if not has_turned then
          set_instant(q, 'filled', now)
        end
        return serve_readers(lock, ends, q, readers, has_more, me)
      end
    end
    return false, only_redisson
  end
  remove_ends(ends) -- the ends of a lock that was deleted
  end_reading(q, get_field(q, 'readfrom'))
  local writes = get_field(q, 'writes') or 0
  local is_spent = writes >= MAX_WRITES or writes > 0 and now - (get_field(q, 'phase') or 0) >= math.min(get_field(q, 'lastread') or 0, MAX_PHASE)
  if entry and not is_spent then
    return serve_writer(lock, q, entry, score, writes, me)
  end
  local readers, has_more = live_readers(q, me)
  if #readers > 0 then
    set_instant(q, 'readfrom', now)
    local any_unnotified = serve_readers(lock, ends, q, readers, has_more, me)
    if (count_listeners(q.publish, channel) or 0) > 0 then -- Redisson's waiting readers can acquire now
      send(q.publish, channel, '1')
    end
    return any_unnotified
  elseif entry then
    return serve_writer(lock, q, entry, score, writes, me)
  end
  if has_more or score == 'unseen' then -- very many waiters are gone: the next request is granted the lock, see hand_over
    hint(q, nil, LAST_WAITERS)
    return true
  end
  redis.call('DEL', q.key)
  return false
end

-- Returns 1 if a holder is of another program, otherwise 0.
local function foreign_flag(lock, ends, mode, now)
  if mode == 'read' then
    return count_redissons(lock, ends, now) > 0 and 1 or 0
  end
  return held_by_other_program(lock) and 1 or 0
end

-- Makes the first waiting writer send a request, or the first reader if no writer waits: see hint. Redisson's readers
-- do not wait for our writers:
--
--   writer W                     server                          reader A of ours, Java
--   requests: held by A -------> queue: W
--                                both read <--------------------- reads
--                                Java's alone; "0 0 W" to W <---- A leaves
--   requests: Java's; W listens
--                                free, which is published <------ leaves
--   requests: granted
--
-- * Another reader of ours still reads when A leaves: the release of that reader sends the hint.
-- * A's lease ends without a release: our next script that finds it ended sends the hint. If none runs, W polls.
-- * A reader leaves the queue while a writer waits: that writer is still the first.
local function hint_rw(q, left)
  local reader = left and left < WRITERS
  return hint(q, reader and math.huge or left, FIRST_WRITER) or hint(q, reader and left)
end

-- Serves the queue of a lock that has lost a hold, or of a queue that has lost a waiter. left is the score of that
-- waiter, if no hold was lost, and math.huge if neither was lost. Returns whether the release must be published: no
-- waiter is queued, or a waiter could not be notified.
local function serve_queue(lock, ends, q, channel, released, has_turned, left)
  if type(redis.pcall('EXISTS', lock, ends, q.key)) ~= 'number' or redis.call('EXISTS', q.key) == 0 then -- or see is_missing
    return true
  elseif type(redis.pcall('ZCARD', q.key)) ~= 'number' or type(redis.pcall('ZCARD', ends)) ~= 'number' then
    return true -- a key of another type: the release still works, and is published
  elseif released and is_missing(lock) and others_queued(q) and is_javas_turn(q, channel, JAVA_SHARE) then
    local began_at = get_field(q, 'readfrom')
    if q.us % JAVA_SHARE == 0 or began_at and q.now - began_at >= READERS_TURN then
      end_reading(q, began_at)
      release_to_java(q, channel, '1')
      hint_rw(q)
      return false
    end
  end
  local any_unnotified, only_redisson = serve_phases(lock, ends, q, channel, nil, has_turned)
  if any_unnotified == nil then -- a writer holds the lock, or the lock is reserved
    only_redisson = redis.call('HGET', lock, 'mode') ~= 'write' or held_by_other_program(lock)
  end
  if only_redisson and left ~= math.huge then
    hint_rw(q, left)
  end
  return any_unnotified or is_missing(lock)
end
