-- The queue of a lock's waiters (queue.lua), served first come, first served. It has one entry for each process and manner of waiting: the
-- other waiters stand in line inside the process. "!open" is the instant until which a released lock is left to Redisson's waiters
-- (see release.lua), "!told" until which it is left to the first in line, a Plain lock's waiter.
--
-- * The lease that is written is the waiter's own, short one: a waiter that turns out to be cut off keeps others out for a short time only.
--   Were it the releaser's, the waiter would count a lease that is not there (TestHandOver_EachLease_CountsFromTheGrant).
-- * A request that finds the lock free and others in the queue hands it to the first of them, and keeps the order.
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
-- uses: owners, queue

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
local function hint(q, left, from)
  local waiter, score = listener(q, from or '(0')
  if waiter and not (left and score <= left) then
    notify(q, waiter, 0, 0)
  end
  return waiter ~= nil
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

-- For how many ms from now a released lock is left to others; nil: it is not.
local function reserved(q)
  return left_to(q, 'open') or left_to(q, 'told')
end

-- Make the first in line whose process is there the holder of a free lock, and tell that process; or leave the lock to it, if it waits
-- for a Plain lock. Returns its entry, and for how long, ms, the
-- lock is left to it; or nil: no one is in line, or publishing is not possible, or the first is "me", which the caller sees to.
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
local function hand_over(lock, q, me, over)
  local entry, ticket, waiter = next_waiter(q, '(0', me, over)
  if entry and entry ~= me and waiter.mode ~= 'x' then -- not to be handed over as a hash
    local rest = math.min(waiter.first, MOST_OPEN)
    if get_field(q, 'told') then
      rest = reserved(q)
    elseif notify(q, waiter, 0, 0) then
      set_instant(q, 'told', q.now + rest)
    else
      return nil
    end
    if rest then
      return entry, rest
    end
    step_out(q, entry, '!told') -- it was told, and has not come
    return hand_over(lock, q, me, over)
  elseif ticket == 'empty' then
    redis.call('DEL', q.key) -- stamps without entries
  elseif ticket == 'unseen' then
    hint(q, nil, LATE)
  end
  if not entry or entry == me then
    return nil
  end
  step_out(q, entry, '!told')
  redis.call('HSET', lock, waiter.owner, 1)
  set_end(lock, waiter.first)
  if notify(q, waiter, ticket, waiter.first) then
    return entry
  end
  redis.call('HDEL', lock, waiter.owner) -- no right to publish there, so nothing was: release openly
  put_back(q, entry, ticket)
end
