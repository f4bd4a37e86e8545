-- The queue of a lock's waiters: a sorted set, score = ticket, the server's µs when it was entered and more than
-- the last one; member = an entry (entry.lua). It has one entry for each process and manner of
-- waiting: the other waiters stand in line inside the process.
-- A waiter that has asked again since has "!<owner>" in it, its stamp, score = -ms of the last time. "!open" is -ms until
-- which a released lock is left to Redisson's waiters (see open_release in release.lua), "!told" until which it is left to
-- the first in line, a Plain lock's waiter. So the first in line is the lowest score above 0, and a dead queue expires as
-- one key.
--
--   waiter B                                     holder A
--   acquire: held; queued, ticket T  ----------->
--   (its deadline will count from this send)     works
--   sleeps, stamps its entry at every poll
--                                                release: takes T out of the queue, writes B's field and B's
--                                                own first lease, then publishes T, lease and owner
--   <------------------------------- on B's channel redlatch_grant:<connectionID>
--   checks that T is the ticket of its last "held" answer: it holds the lock
--   after a third of the short lease the watchdog raises it to the full one
--
-- * The lease that is written is the waiter's own, short one: a waiter that turns out to be cut off keeps others out for a short time only.
--   Were it the releaser's, the waiter would count a lease that is not there (TestHandOver_EachLease_CountsFromTheGrant).
-- * A request that finds the lock free and others in the queue hands it to the first of them, and keeps the order.
-- * A waiter that leaves takes its stamp along. Otherwise the stamps of waiters long gone pile up for as long as anybody waits.
-- * A grant that comes too late is not given back on sight: the waiter that gave up has a release pending for it. Otherwise a
--   late message would take the lock from a waiter that had found its grant by asking and was already unlocking: its unlock
--   would find nothing and report a loss.
-- * A release can name the owner of its process's next tenure (tenancy.go), which it makes the holder with its full lease if no one else
--   queues, and otherwise puts into the queue before it serves the first there. The deadline counts from when the release was sent.
-- * Redisson's waiters race for what is published: see theirs in release.lua.
-- * While the slot is being migrated, a script with two keys is refused. It is sent again without the queue, and waiters poll.
--
-- Waiters of a Plain lock of the name, a string, stand in the same queue. A Plain lock is not handed over: its key is deleted,
-- as the pattern of the Redis documentation has it, so that other programs can take it at any moment. The first in line is
-- told that the lock is free, keeps its place, and asks:
--
--   waiter B, of a Plain lock                    holder A, of any kind
--   acquire: held; queued, in mode p ------------>
--   sleeps                                       release: the key is gone; "!told"
--   <------------------------------- on B's channel: "0 0 B"
--   acquire: it is the first, granted; out of the queue
--                                                acquire: free, but left to B: queues
--
-- * The free lock is left to B for the "first" of its entry, two of its round trips. Meanwhile no other caller of this library gets
--   it: A, if it is nearer to the server than B, would release, ask and have the lock again before B's request is there, every
--   time (TestPlain_OneProcessIsNearer_FartherIsNotStarved).
-- * B's process has died: nobody listens, so B's entry is dropped, and the next is served, in the same call.
-- * B's process is stopped, or slow, or the message is lost: the first request for a Plain lock after these ms is granted the
--   lock, because its sender is there. B keeps its place if it asks before the next release; otherwise that release drops B,
--   and serves the next. If B is alive it queues anew when it asks. A request for a hash drops B at once, and serves the
--   next. If nobody asks, because all sleep, the lock is idle until a waiter polls, a PollCap at most.
-- * Another program takes the lock before B asks: B's request finds that, removes "!told" and keeps B's place, so B is told
--   again by the next release. The other program's release tells nobody: waiters poll. So do waiters of a lock whose lease
--   has ended, when it has ended by their last answer.
-- * B has been told, and the lock changes hands quickly: "!told" is there still, so B is not told twice.
-- * B leaves after it was told: its release removes "!told" and its entry, finds the lock free, and serves the next.
-- * This runs twice: the second run finds "!told", and sends nothing.
-- * A waiter of a Fair or ReadWrite lock of the name stands in a queue of its own, which is not served here: it polls.
-- uses: owners, clock, entry, listeners, send

local OPEN = 5 -- for so many ms
local MOST_OPEN = 200 -- ms at most for which a free lock is left to anybody
local QUEUE_TTL = 60000 -- more than twice what any entry can ask for as its "stale after"
local HINTS = 16 -- so many in line are looked at for one that listens
local MOST_GONE = 128 -- so many at most are taken out of a line by one script

-- Have the first waiter ask whose process listens, in the scores from "from" on. A program of another kind hands over nothing. Its
-- release is heard by a waiter only whose last answer named such a holder, and nothing is heard of the end of its lease. So wherever one
-- of our scripts leaves the lock to another program, the first in line is to have such an answer:
--
--   waiters B, C                 server                          A of ours, and Java
--   ask: held by A ------------> line: B, C
--                                opened to Java; "0 0 B" to B <-- A releases
--                                Java has it <------------------- takes it
--   B asks: Java's; B listens
--   B gives up ----------------> "0 0 C" to C
--   C asks: Java's; C listens
--                                its release is published <------ releases
--   C asks: granted
--
-- left: the score of a waiter that has left the line, where nothing else has changed. A waiter before it is the first still, and has
-- its answer.
-- * Java releases before C's question is there: C finds the lock free, and is granted it.
-- * Java releases between C's answer and its subscription: C asks once more when that is confirmed (package wait).
-- * B's process has died: C is the first that listens, and B's entry goes when it is stale. If B dies after its hint, C polls.
-- * This runs twice: C asks twice, or the second run finds B gone, and sends nothing.
-- from: LATE if it is to be one of the last in line. Returns whether there is such a waiter.
local LATE = 'late'

local function hint(queue, publish, grants, left, from)
  local line
  if from == LATE then
    line = redis.pcall('ZRANGE', queue, '+inf', '(0', 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, HINTS)
  else
    line = redis.pcall('ZRANGE', queue, from or '(0', '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, HINTS)
  end
  for i = 1, line.err and 0 or #line, 2 do
    local waiter = read_entry(line[i])
    if waiter and listeners(publish, grants .. waiter.process) ~= 0 then
      if not left or tonumber(line[i + 1]) > left then
        send(publish, grants .. waiter.process, '0 0 ' .. waiter.owner)
      end
      return true
    end
  end
  return false
end

-- Which of a lock and its queue (if there is one to use) are there: 3 both, 2 the lock, 1 the queue. removed: this script
-- may have removed the lock's last field. While their slot is being migrated, what has been removed here may not even be
-- looked at any more, and is made anew on the other node: then nil, and nothing can be handed over.
local function which(lock, queue, removed)
  local there
  if queue then
    there = redis.pcall('EXISTS', lock, lock, queue)
  else
    there = redis.pcall('EXISTS', lock, lock)
  end
  if type(there) ~= 'table' then
    return there
  elseif not removed then -- the refusal is the caller's to have
    return redis.call('EXISTS', lock, lock, queue or lock)
  end
end

-- The name of a waiter's stamp; of a text that is no entry none.
local function stamp_of(entry)
  local waiter = read_entry(entry)
  return '!' .. (waiter and waiter.owner or '')
end

-- Enter the queue, or stamp the entry that is there. Returns the ticket.
local function enter(queue, entry, now, us)
  local ticket = us
  local last = tonumber(redis.call('ZRANGE', queue, 0, 0, 'REV', 'WITHSCORES')[2] or 0)
  if last >= ticket then -- the clock stepped back
    ticket = last + 1
  end
  if redis.call('ZADD', queue, 'NX', digits(ticket), entry) == 0 then
    ticket = tonumber(redis.call('ZSCORE', queue, entry))
    redis.call('ZADD', queue, -now, stamp_of(entry))
  end
  -- The queue's end is moved on by the first entry of each second: the newest entry's second has had one.
  if math.floor(us / 1000000) ~= math.floor(last / 1000000) then
    redis.call('PEXPIRE', queue, QUEUE_TTL)
  end
  return ticket
end

-- For how many ms from now a released lock is left to others; nil: it is not. A marker that is further ahead than one can
-- be is of before the server's clock stepped back.
local function reserved(queue, now)
  for _, mark in ipairs({'!open', '!told'}) do
    local open = redis.call('ZSCORE', queue, mark)
    if open and not expired(-open, now) and -open - now <= MOST_OPEN then
      return -open - now
    end
  end
end

local function step_out(queue, entry)
  redis.call('ZREM', queue, entry, stamp_of(entry))
end

-- Make the first in line whose process is there the holder of a free lock, and tell that process; or leave the lock to it, if it waits
-- for a Plain lock. Returns its entry, and for how long, ms, the
-- lock is left to it; or nil: no one is in line, or publishing is not possible, or the first is "me", which the caller sees to.
--
-- Its field and lease are written before anything is published: a process that acts on the message must find them. For
-- the same reason nothing is taken back once it is published: that it has no receivers here does not say that no one
-- hears it, since a server passes it on to its replicas, where a process may be subscribed: the primary would undo and serve
-- another, and both would hold (TestHolders_PrimaryAndReplicaSwap_ExcludeEachOther). So whether the process is
-- there is asked before. One that is gone does not count, and its entry is dropped; one that is there but has not
-- looked for long (stopped, cut off) is passed over. A wrong count costs time: a waiter that is dropped looks again and queues
-- anew, and one that is granted without hearing of it finds out when it looks. An entry of "over", an owner that is released,
-- has been left behind where the queue could not be reached; it is dropped.
--
-- No call is to be long. Where very many are gone some are dropped, and one that came late and listens is to ask:
--
--   waiter B                     server                          holder A
--   asks: held by A -----------> line: 300 that are gone, B
--                                128 are dropped; "0 0 B" to B <- releases
--   asks: 128 are dropped; granted
--
-- * Who asks is granted the lock, though some that are alive may have come before: who that is would take another call to find.
-- * None of the last 16 listens, or the message is lost: B polls, and any that comes is granted the lock.
-- * The release runs twice: it drops 128 more, and B asks twice.
local function hand_over(lock, queue, publish, grants, now, me, over)
  for _ = 1, MOST_GONE do
    -- A queue of another type does not prevent a release: the owner is out of the lock already.
    local head = redis.pcall('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    if head.err then
      return nil
    end
    local entry, ticket = head[1], tonumber(head[2])
    if not entry then
      redis.call('DEL', queue) -- stamps without entries
      return nil
    end
    if entry == me then
      return nil
    end
    local waiter, stamp, seen = read_entry(entry), stamp_of(entry), ticket / 1000
    if waiter and (now - seen > waiter.stale or seen > now + 1) then -- or the clock stepped back since
      seen = -tonumber(redis.call('ZSCORE', queue, stamp) or -seen)
    end
    local channel = waiter and grants .. waiter.process
    local there = waiter and waiter.owner ~= over and now - seen <= waiter.stale and listeners(publish, channel) ~= 0
    if there and waiter.mode ~= 'x' then -- not to be handed over as a hash
      local told, reservation = redis.call('ZSCORE', queue, '!told'), math.min(waiter.first, MOST_OPEN)
      if not told then
        if type(send(publish, channel, '0 0 ' .. waiter.owner)) == 'table' then
          return nil
        end
        redis.call('ZADD', queue, -(now + reservation), '!told')
        return entry, reservation
      elseif reserved(queue, now) then
        return entry, reserved(queue, now)
      end
      there = false -- it was told, and has not come
    end
    redis.call('ZREM', queue, entry, stamp, '!told')
    if there then
      redis.call('HSET', lock, waiter.owner, 1)
      set_end(lock, waiter.first)
      local sent = send(publish, channel, string.format('%.0f %.0f %s', ticket, waiter.first, waiter.owner))
      if type(sent) ~= 'table' then
        return entry
      end
      -- no right to publish there, so nothing was: release openly
      redis.call('HDEL', lock, waiter.owner)
      redis.call('ZADD', queue, digits(ticket), entry, -now, stamp)
      redis.call('PEXPIRE', queue, QUEUE_TTL) -- if it was the last one the queue has been made anew
      return nil
    end
  end
  hint(queue, publish, grants, nil, LATE)
end
