-- The queue of a read-write lock's waiters: a sorted set; member = an entry (entry.lua), score
-- = band + ticket. The ticket is as in the queue of handover.lua. Readers stand in band 0, writers from BAND on, so the first of each is
-- found in O(log n).
--
-- What is not a waiter has a score of 0 or less. "!<owner>" is a stamp, "!open" a reservation, both as in handover.lua; the others
-- are -ms, and say how far the phases are:
--   !readfrom  since when readers have been in           !lastread  how long they were, the last time
--   !phase     since when writers have followed another  !writes    how many they were
--   !filled    when readers last joined readers while a writer waited
--   !rest      readers of this phase are still in line
-- They begin with the first that has to wait: an uncontended lock has no queue.
--
-- Phases. When the last reader leaves, the first writer is next. When a writer leaves, the next one is, as long as the writers'
-- phase is younger than the readers' phase before it and than MOST_PHASE, and has had fewer than MOST_WRITES; otherwise all
-- readers in line are; so, too, when the writer goes on as a reader. While readers are in, a reader that comes is let in only if no
-- writer waits. A writer can so be kept out by one reader that hangs, and would keep out all other readers. Hence the refill:
-- the first writer sees the readers in line let in when it has waited for R, 2R, 4R, ...; R is its poll, and doubling bounds its
-- wait (TestReaders_OneHangs_OthersAreAdmitted).
--
-- The order of what is sent:
--
--   reader B                                        writer A
--   acquire: held; B's timeout key is set, then
--   its entry made; ticket T                        works
--   <-- the deadline will count from that send
--                                                   release: writes B's field, its end and the lock's, takes T out,
--                                                   then publishes T, lease and owner
--   <---------------------------------------------- on B's channel of grants
--
-- * The timeout key is Redisson's end of a reader. The script that grants may not write it: it is not a key of that script. A reader that is
--   granted without one is deleted with the hash by the next unlock of a Java reader, and a writer acquires although it reads. So the
--   waiter makes it before it is in line, and each poll has it outlast the entry by the lease.
-- * All fields, ends and leases are written before anything is published: see handover.lua, also for why it is asked before who
--   listens, and nothing is taken back that was published. A grant whose PUBLISH is refused was not heard of, and is undone.
-- * A process that was stopped or cut off and still has its subscription is passed over when it has not asked for "stale
--   after". Until then its waiting writer keeps readers out.
-- uses: owners, raise, rw, handover, clock, entry, listeners, send

local BAND = 3000000000000000 -- more than a ticket, µs, until the year 2065; two of them are less than 2^53
local MOST_WRITES = 16
local MOST_PHASE = 200 -- ms
local MOST_READERS = 256 -- that one script lets in
local TURN = 200 -- ms after which readers make room for Redisson's waiters
local FLOOD = 20 -- ms between refills while all readers are Redisson's

-- A field of the queue: nil if it is not set.
local function get_field(queue, name)
  local score = redis.call('ZSCORE', queue, '!' .. name)
  return score and -score
end

local function set_field(queue, name, value)
  redis.call('ZADD', queue, digits(-value), '!' .. name)
end

-- Enter the line, or stamp the entry that is there. Returns its score.
local function line_up(queue, entry, band, mode, now, us)
  local score = redis.call('ZSCORE', queue, entry)
  if score then
    score = tonumber(score)
    redis.call('ZADD', queue, -now, stamp_of(entry))
  else
    score = band + us
    local ahead = redis.call('ZRANGE', queue, digits(score), '(' .. digits(band + BAND), 'BYSCORE', 'WITHSCORES')
    if #ahead > 0 then -- the clock stepped back
      score = tonumber(ahead[#ahead]) + 1
    end
    redis.call('ZADD', queue, digits(score), entry)
    if mode == 'read' and not get_field(queue, 'readfrom') then
      set_field(queue, 'readfrom', now)
    elseif mode == 'write' and not get_field(queue, 'writes') then
      set_field(queue, 'writes', 1)
      set_field(queue, 'phase', now)
    end
  end
  redis.call('PEXPIRE', queue, QUEUE_TTL)
  return score
end

-- Whether the waiter of an entry is there: it has asked of late, and its process listens. heard: what is known of processes.
-- A stamp that is far ahead is of before the server's clock stepped back.
local function alive(queue, entry, score, now, publish, grants, heard)
  local waiter, seen = read_entry(entry), score % BAND / 1000
  if not waiter or score >= 2 * BAND then -- nothing that a waiter of ours has written
    return false
  end
  if math.abs(now - seen) > waiter.stale then
    seen = -tonumber(redis.call('ZSCORE', queue, '!' .. waiter.owner) or 0)
  end
  if math.abs(now - seen) > waiter.stale then
    return false
  end
  if heard[waiter.process] == nil then
    heard[waiter.process] = listeners(publish, grants .. waiter.process) ~= 0
  end
  return heard[waiter.process]
end

-- The first writer in line that is there, and its score. Those that are not are dropped. "me" asks, so it is there. Where very many
-- are gone some are dropped, and none is found; the third that is returned says so.
local function first_writer(queue, now, publish, grants, heard, me)
  for _ = 1, MOST_GONE do
    local head = redis.call('ZRANGE', queue, digits(BAND), '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    local entry, score = head[1], tonumber(head[2])
    if not entry or entry == me or alive(queue, entry, score, now, publish, grants, heard) then
      return entry, score
    end
    step_out(queue, entry)
  end
  return nil, nil, true
end

-- Those of the first readers in line that are there, {entry, score, ...}, and whether there may be more. Those that are not are dropped.
local function readers(queue, now, publish, grants, heard, me)
  local all = redis.call('ZRANGE', queue, '(0', '(' .. digits(BAND), 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, MOST_READERS)
  local there, gone = {}, {}
  for i = 1, #all, 2 do
    if all[i] == me or alive(queue, all[i], tonumber(all[i + 1]), now, publish, grants, heard) then
      there[#there + 1] = all[i]
      there[#there + 1] = tonumber(all[i + 1])
    else
      gone[#gone + 1], gone[#gone + 2] = all[i], stamp_of(all[i])
    end
  end
  if #gone > 0 then
    redis.call('ZREM', queue, unpack(gone))
  end
  return there, #all == 2 * MOST_READERS
end

-- When readers may next join those that read, ms, while a writer with that score and entry waits. alien: all that are
-- in are Redisson's, which does not wait for our writers, so that ours alone would stand still.
local function refill(queue, entry, score, now, alien)
  local since, filled = score % BAND / 1000, get_field(queue, 'filled') or 0
  if alien then
    return math.min(math.max(filled, get_field(queue, 'readfrom') or 0), now) + FLOOD
  end
  local poll = read_entry(entry).stale * 2 / 5
  return since + math.max(poll, 2 * (math.min(filled, now) - since))
end

-- How many are in that have no end of ours: Redisson's readers.
local function aliens(lock, ends, now)
  local others = redis.call('HLEN', lock) - 1
  return others - redis.call('ZCOUNT', ends, digits(now), '+inf'), others
end

local function only_aliens(lock, ends, now)
  local alien, all = aliens(lock, ends, now)
  return alien == all
end

-- Make the waiter of an entry a holder: it is as in acquire, but with the entry's short lease. Its process is not notified yet.
local function admit(lock, ends, entry, now)
  local waiter = read_entry(entry)
  redis.call('HSET', lock, 'mode', 'read', waiter.owner, 1)
  if redis.call('PTTL', lock) == -1 and redis.call('HLEN', lock) == 2 then
    set_end(lock, waiter.first)
  else
    raise(lock, waiter.first)
  end
  last_until(ends, waiter.owner, now + waiter.first, now)
end

-- Notify a process that its entry was served. Returns false if publishing is denied, so that no one was.
local function notify(entry, score, publish, grants)
  local waiter = read_entry(entry)
  return type(send(publish, grants .. waiter.process, string.format('%.0f %.0f %s', score, waiter.first, waiter.owner))) ~= 'table'
end

-- Let readers in. Returns whether one could not be notified, and so is in line still.
local function serve_readers(lock, ends, queue, there, more, publish, grants, now, me)
  local unnotified = false
  for i = 1, #there, 2 do
    admit(lock, ends, there[i], now)
  end
  for i = 1, #there, 2 do
    if there[i] == me or notify(there[i], there[i + 1], publish, grants) then
      step_out(queue, there[i])
    else
      local owner = read_entry(there[i]).owner
      redis.call('HDEL', lock, owner)
      redis.call('ZREM', ends, owner)
      unnotified = true
    end
  end
  if redis.call('HLEN', lock) <= 1 then
    redis.call('DEL', lock)
  end
  set_field(queue, 'writes', 0)
  if more then
    set_field(queue, 'rest', now)
  else
    redis.call('ZREM', queue, '!rest')
  end
  return unnotified
end

-- Make the first writer the holder of a free lock. Returns whether it could not be notified.
local function serve_writer(lock, queue, entry, score, had, publish, grants, now, me)
  local waiter = read_entry(entry)
  redis.call('HSET', lock, 'mode', 'write', waiter.owner .. ':write', 1)
  set_end(lock, waiter.first)
  if entry ~= me and not notify(entry, score, publish, grants) then
    redis.call('DEL', lock)
    return true
  end
  if had == 0 then
    set_field(queue, 'phase', now)
  end
  set_field(queue, 'writes', had + 1) -- before the place goes: a set that was emptied in between would be made anew, without an end
  step_out(queue, entry)
  return false
end

-- Whether readers are to stay out though no writer of ours waits: readers have been in for long, and a waiter of Redisson's
-- waits, who could not get in as long as others of ours come.
local function closed(queue, channel, publish, now)
  if not java_waits(publish, channel) then
    return false
  end
  local from = get_field(queue, 'readfrom')
  if not from then
    set_field(queue, 'readfrom', now)
    redis.call('PEXPIRE', queue, QUEUE_TTL)
    return false
  end
  return now - from >= TURN
end

-- Serve the next in a line that exists. me: the caller's entry, or nil; it hears of it in the reply. turned: the writer has
-- become a reader, so that a readers' phase begins. Returns true if one could not be notified, and nil if nothing was tried: a
-- writer holds the lock, or it is reserved. Then whether readers of Redisson's alone keep the first in line waiting.
local function serve(lock, ends, queue, publish, channel, grants, now, me, turned)
  local mode = redis.call('HGET', lock, 'mode')
  if reserved(queue, now) or mode == 'write' or not mode and redis.call('EXISTS', lock) == 1 then
    return nil
  end
  local heard = {}
  local writer, score, unseen = first_writer(queue, now, publish, grants, heard, me)
  if mode then
    local due, alone = turned, false
    if turned then
      set_field(queue, 'readfrom', now)
    elseif writer then
      alone = only_aliens(lock, ends, now)
      due = get_field(queue, 'rest') or refill(queue, writer, score, now, alone) <= now
    elseif closed(queue, channel, publish, now) then
      alone = only_aliens(lock, ends, now)
    else
      due = true
    end
    if due then
      local there, more = readers(queue, now, publish, grants, heard, me)
      if #there > 0 then
        if not turned then
          set_field(queue, 'filled', now)
        end
        return serve_readers(lock, ends, queue, there, more, publish, grants, now, me)
      end
    end
    return false, alone
  end
  drop_ends(ends) -- of a lock that was deleted
  local from = get_field(queue, 'readfrom')
  if from then
    set_field(queue, 'lastread', math.max(now - from, 0))
    redis.call('ZREM', queue, '!readfrom')
  end
  local had = get_field(queue, 'writes') or 0
  local spent = had >= MOST_WRITES or had > 0 and now - (get_field(queue, 'phase') or 0) >= math.min(get_field(queue, 'lastread') or 0, MOST_PHASE)
  if writer and not spent then
    return serve_writer(lock, queue, writer, score, had, publish, grants, now, me)
  end
  local there, more = readers(queue, now, publish, grants, heard, me)
  if #there > 0 then
    set_field(queue, 'readfrom', now)
    local unnotified = serve_readers(lock, ends, queue, there, more, publish, grants, now, me)
    if (listeners(publish, channel) or 0) > 0 then -- Redisson's readers, who can come in now
      send(publish, channel, '1')
    end
    return unnotified
  elseif writer then
    return serve_writer(lock, queue, writer, score, had, publish, grants, now, me)
  end
  if more or unseen then -- very many are gone: who asks is granted it, see hand_over
    hint(queue, publish, grants, nil, LATE)
    return true
  end
  redis.call('DEL', queue)
  return false
end

-- Whether anybody but "me" stands in line.
local function others_wait(queue, me)
  for _, entry in ipairs(redis.call('ZRANGE', queue, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, 2)) do
    if entry ~= me then
      return true
    end
  end
  return false
end

-- What is known of who is in: whether any is not ours.
local function foreign(lock, ends, mode, now)
  if mode == 'read' then
    return aliens(lock, ends, now) > 0 and 1 or 0
  end
  return held_by_others(lock) and 1 or 0
end

-- Have the first writer in line ask, or the first reader where no writer waits: see hint. Readers of Redisson's wait for no writer of ours:
--
--   writer W                     server                          reader A of ours, Java
--   asks: held by A -----------> line: W
--                                both read <--------------------- reads
--                                Java's alone; "0 0 W" to W <---- A leaves
--   asks: Java's; W listens
--                                free, which is published <------ leaves
--   asks: granted
--
-- * Another reader of ours is in when A leaves: that one's release is the one to look.
-- * A's lease ends without a word: the next of our scripts that finds it over looks. If none comes, W polls.
-- * A reader leaves the line while a writer waits: that writer is the first still.
local function hint_line(queue, publish, grants, left)
  local reader = left and left < BAND
  return hint(queue, publish, grants, reader and math.huge or left, digits(BAND)) or hint(queue, publish, grants, reader and left)
end

-- Have Redisson's waiters, who stand in no line, race for a lock that is free, and ours only wait for a moment. The first in
-- line is notified when that is over.
local function open_to_others(queue, channel, publish, grants, now)
  set_field(queue, 'open', now + OPEN)
  send(publish, channel, '1')
  hint_line(queue, publish, grants)
end

-- See to the line of a lock that has lost a hold, or whose line has lost a waiter; left is the score of that, if no hold was
-- lost, and math.huge if neither was.
-- Returns whether it is to be said openly: no one stands in line, or one could not be notified.
local function pass_on(lock, ends, queue, publish, channel, grants, now, us, released, turned, left)
  if type(redis.pcall('EXISTS', lock, ends, queue)) ~= 'number' or redis.call('EXISTS', queue) == 0 then -- or see emptied
    return true
  elseif type(redis.pcall('ZCARD', queue)) ~= 'number' or type(redis.pcall('ZCARD', ends)) ~= 'number' then
    return true -- of another type: a release still works, and is said openly
  elseif released and emptied(lock) and others_wait(queue) and java_waits(publish, channel) then
    local from = get_field(queue, 'readfrom')
    if us % 8 == 0 or from and now - from >= TURN then
      if from then
        set_field(queue, 'lastread', math.max(now - from, 0))
        redis.call('ZREM', queue, '!readfrom')
      end
      open_to_others(queue, channel, publish, grants, now)
      return false
    end
  end
  local unnotified, alien = serve(lock, ends, queue, publish, channel, grants, now, nil, turned)
  if unnotified == nil then -- a writer's, or left to others for a moment
    alien = redis.call('HGET', lock, 'mode') ~= 'write' or held_by_others(lock)
  end
  if alien and left ~= math.huge then
    hint_line(queue, publish, grants, left)
  end
  return unnotified or emptied(lock)
end
