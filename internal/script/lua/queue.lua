-- The queue of the waiters for a lock or for permits: a sorted set, which expires as one key. The policy of each
-- package serves the waiters: handover.lua (first and plain), rwqueue.lua (phases), serve.lua (permits).
--
--   member               score
--   an entry (entry.lua) its ticket: the server's µs when it was added, and more than the last ticket of its range. A
--                        writer's score is WRITERS higher, so the first reader and the first writer are each found in
--                        O(log n)
--   "!<name>"            above -10^11: a number of the policy, negated
--                        down to -4*10^12: a stamp, -ms of the last request of an owner, or, for permits, of a process
--                        below: an instant of the policy, -INSTANT - ms
--
-- The stamp of a process stays when its entries go, so the first entry of each second removes old stamps. The ranges of
-- scores keep numbers and instants from being removed as old stamps: a reading phase that began two minutes ago has to
-- keep its beginning. The stamp of an owner goes with the owner's entry. Otherwise the queue would exist after its last
-- waiter, and the next requests would not take their short path.
--
-- A waiter's turn, whatever the policy:
--
--   waiter B                                     holder A
--   acquire: held; queued, ticket T  ----------->
--   (B's deadline will count from this send)     works
--   sleeps, stamps its entry at every poll
--                                                release: removes T from the queue, writes B's hold with B's
--                                                own first lease, then publishes T, lease and owner
--   <------------------------------- on B's channel redlatch_grant:<connectionID>
--   checks that T is the ticket of its last "held" reply: B holds the lock
--   after a third of the short lease the watchdog raises it to the full lease
--
-- * A grant is written before it is published, because a process that acts on the message must find its hold. For the
--   same reason no published grant is taken back. A message without receivers on this server may have receivers
--   elsewhere, because the server passes it on to its replicas. If the primary took the grant back and served another
--   waiter, both would hold (TestHolders_PrimaryAndReplicaSwap_ExcludeEachOther). So the script checks before the grant
--   whether the waiter's process listens. Only a grant whose PUBLISH is refused, and so reached no process, is undone:
--   the entry gets the same ticket again.
-- * The entry of a process that is gone is dropped. So is an entry without a request for long, whose process is stopped
--   or cut off. A wrong decision costs time only: a dropped waiter makes a request and gets a new entry, and a waiter
--   that misses its grant finds its hold by its next request.
-- * A text that is no entry is dropped like the entry of a process that is gone, because no process can be notified of
--   it.
-- * Twice: a waiter keeps its ticket, and a granted entry is no longer in the queue.
--
-- The queue of a run is q = {key, publish, grants, now, us}: the key; PUBLISH or SPUBLISH; the prefix of the channels
-- of grants; the server's ms and µs. If a process has many entries, and the reply names its grants, q has conn: the
-- process that makes the call.
-- uses: clock, entry, listeners, send

local QUEUE_TTL = 60000 -- more than twice the longest "stale" of an entry
local WRITERS = 3000000000000000 -- more than a ticket, µs, until the year 2065; twice WRITERS is less than 2^53
local FIRST_WRITER = '3000000000000000' -- WRITERS as a limit of scores: digits takes longer than a command
local INSTANT = 4000000000000 -- more than an ms of the clock until the year 2096
local JAVA_RESERVATION = 5 -- for how many ms a free lock or permit is reserved for Redisson's waiters
local MAX_RESERVATION = 200 -- the most ms for which a free lock or permit is reserved
local JAVA_SHARE = 8 -- Redisson's waiters get one release of this many
local MAX_SEARCHED = 16 -- how many entries are searched for a waiter whose process listens
local LAST_WAITERS = 'late'
local MAX_DROPPED = 128 -- the most entries that one search for the next waiter drops

-- Returns the queue of a run; nil without key. Outside a Cluster publish and grants may be left out.
local function queue_of(key, publish, grants, now, us, conn)
  return key and {key = key, publish = publish or 'PUBLISH', grants = grants or 'redlatch_grant:', now = now, us = us, conn = conn}
end

-- Returns a number or an instant of the policy; nil if it is not set.
local function get_field(q, name)
  local score = tonumber(redis.call('ZSCORE', q.key, '!' .. name))
  return score and (score < -INSTANT and -score - INSTANT or -score)
end

local function set_field(q, name, value)
  redis.call('ZADD', q.key, digits(-value), '!' .. name)
end

local function set_instant(q, name, ms)
  set_field(q, name, INSTANT + ms)
end

-- Returns the name of a waiter's stamp; '!' if waiter is nil, because its text is no entry.
local function stamp_name(q, waiter)
  return '!' .. (waiter and (q.conn and waiter.process or waiter.owner) or '')
end

-- Adds an entry to the queue, or stamps the existing entry. Returns the entry's score, whether the entry is new, and
-- whether it is the first entry of its second. from: 0, or WRITERS for a writer.
--
-- A new entry should be the last of its range, and the entry before it is the only one whose score is read: a release
-- that names its next owner runs these lines at each hand-over, and a score costs the server more than most commands.
-- If the entry is not the last, then its score or a higher one is read, and the clock has stepped back.
local function enqueue(q, entry, from)
  local score = from + q.us
  if redis.call('ZADD', q.key, 'NX', digits(score), entry) == 0 then
    if not q.conn then
      redis.call('ZADD', q.key, -q.now, stamp_name(q, read_entry(entry)))
    end
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
    return tonumber(redis.call('ZSCORE', q.key, entry))
  end
  local above, below = FIRST_WRITER, '(0'
  if from == WRITERS then
    above, below = '6000000000000000', '(' .. FIRST_WRITER
  end
  local before = redis.call('ZRANGE', q.key, above, below, 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 1, 1)
  local last = tonumber(before[2]) or 0
  if last >= score then
    local highest = redis.call('ZRANGE', q.key, above, below, 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, 1)
    last = tonumber(highest[2])
    score = last + 1
    redis.call('ZADD', q.key, digits(score), entry)
  end
  local is_first = math.floor(q.us / 1000000) ~= math.floor((last - from) / 1000000)
  if is_first then
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
  end
  return score, true, is_first
end

-- Removes an entry, its stamp, and another member, if it is given. waiter is the parsed entry, if the caller has it.
local function dequeue(q, entry, waiter, other)
  redis.call('ZREM', q.key, entry, not q.conn and stamp_name(q, waiter or read_entry(entry)) or entry, other or entry)
end

-- Puts an entry back whose grant could not be published. PEXPIRE is needed because removing the last entry has deleted
-- the queue.
local function requeue(q, entry, score)
  redis.call('ZADD', q.key, digits(score), entry, -q.now, stamp_name(q, read_entry(entry)))
  redis.call('PEXPIRE', q.key, QUEUE_TTL)
end

-- Reports whether the queue has an entry other than "me".
local function others_queued(q, me)
  for _, entry in ipairs(redis.call('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, me and 2 or 1)) do
    if entry ~= me then
      return true
    end
  end
  return false
end

-- Reports whether a process listens to its channel of grants on this server. It is taken to listen if the user has no
-- right to ask. Each process is checked once in a run.
local function is_listening(q, process)
  q.heard = q.heard or {}
  if process ~= q.conn and q.heard[process] == nil then
    q.heard[process] = count_listeners(q.publish, q.grants .. process) ~= 0
  end
  return process == q.conn or q.heard[process]
end

-- Reports whether a waiter is alive: it has sent a request of late, and its process listens. An instant far ahead of
-- now was written before the server's clock stepped back, so it counts as old. No waiter of ours has a score of twice
-- WRITERS.
local function is_alive(q, waiter, score)
  if score >= 2 * WRITERS then
    return false
  elseif waiter.process ~= q.conn and math.abs(q.now - score % WRITERS / 1000) > waiter.stale then
    local name = stamp_name(q, waiter)
    q.stamps = q.stamps or {}
    q.stamps[name] = q.stamps[name] or -(redis.call('ZSCORE', q.key, name) or 0)
    if math.abs(q.now - q.stamps[name]) > waiter.stale then
      return false
    end
  end
  return is_listening(q, waiter.process)
end

-- Reports whether the caller of a waiter is about to give up. A grant would not reach the caller in time, and its
-- release would cost a round trip. Among callers with little patience that is common, because the first waiters of the
-- queue have waited longest.
local function is_leaving(q, waiter)
  return waiter.leaves > 0 and begun(waiter.leaves, q.now)
end

-- Returns the first live waiter from a score on: its text, its score, and its parsed entry. "me" makes this request, so
-- it is alive. Two kinds of entries before it are dropped, and with them the reservation of their waiter:
--
-- * entries of waiters that are not alive
-- * entries of the owner "released", which were left when a script could not reach the queue
--
-- Without a live waiter returns nil and the reason: the queue is 'empty' or 'unreadable', or MAX_DROPPED entries were
-- dropped and the others are 'unseen'.
local function next_waiter(q, from, me, released)
  for _ = 1, MAX_DROPPED do
    -- A queue of another type does not prevent a release: the owner is out of the lock already.
    local head = redis.pcall('ZRANGE', q.key, from, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    local entry, score = head[1], tonumber(head[2])
    if not entry then
      return nil, head.err and 'unreadable' or 'empty'
    end
    local waiter = read_entry(entry)
    if entry == me or waiter and waiter.owner ~= released and is_alive(q, waiter, score) then
      return entry, score, waiter
    end
    dequeue(q, entry, waiter, '!told')
  end
  return nil, 'unseen'
end

-- Publishes to a waiter's process that the waiter was granted, or, with ms 0, that it is to make a request. Returns
-- false if publishing is denied.
local function notify(q, waiter, ticket, ms)
  return type(send(q.publish, q.grants .. waiter.process, string.format('%.0f %.0f %s', ticket, ms, waiter.owner))) ~= 'table'
end

-- Returns the first waiter whose process listens, and its score. It searches MAX_SEARCHED entries from a score on, or,
-- with LAST_WAITERS, the last MAX_SEARCHED entries.
local function first_listening(q, from)
  local found
  if from == LAST_WAITERS then
    found = redis.pcall('ZRANGE', q.key, '+inf', '(0', 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, MAX_SEARCHED)
  else
    found = redis.pcall('ZRANGE', q.key, from, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, MAX_SEARCHED)
  end
  for i = 1, found.err and 0 or #found, 2 do
    local waiter = read_entry(found[i])
    if waiter and is_listening(q, waiter.process) then
      return waiter, tonumber(found[i + 1])
    end
  end
end

-- Returns for how many ms from now a free lock or permit is reserved; nil if it is not. name is "open" for Redisson's
-- waiters, or "told" for the first waiter of the queue, which was notified. A reservation for more than
-- MAX_RESERVATION was written before the server's clock stepped back.
local function reservation_left(q, name)
  local reserved_until = get_field(q, name)
  if reserved_until and not expired(reserved_until, q.now) and reserved_until - q.now <= MAX_RESERVATION then
    return reserved_until - q.now
  end
end

-- Reports whether a release is left to Redisson's clients, which race for a published release. If each release were
-- handed over, they would never get a lock. If any of them listens, they get one release in JAVA_SHARE. A hold that
-- several callers of a process had in turn counts once for each turn. Otherwise Redisson would get a lock less often
-- the more callers a process has.
local function is_javas_turn(q, channel, turns)
  return q.us % JAVA_SHARE < turns and java_waits(q.publish, channel)
end

-- Publishes a release, and reserves the free lock or permit for Redisson's waiters for JAVA_RESERVATION ms.
local function release_to_java(q, channel, message)
  set_instant(q, 'open', q.now + JAVA_RESERVATION)
  send(q.publish, channel, message)
end
