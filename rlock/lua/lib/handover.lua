-- Serves the queue of a lock's waiters (queue.lua), first come, first served. The queue has one entry for each process
-- and class of waiters. The other waiters of a process wait in its local queue. "!open" is the instant until which a
-- released lock is left to Redisson's waiters (see release.lua). "!told" is the instant until which it is left to the
-- first waiter, if that waits for a Plain lock.
--
-- * The written lease is the waiter's own, short lease, so that a waiter that is cut off keeps the lock from others
--   for a short time only. If it were the releaser's lease, the waiter would count on a lease that the server does not
--   have (TestHandOver_EachLease_CountsFromTheGrant).
-- * A request that finds the lock free and other waiters queued hands the lock to the first of them, and so keeps the
--   order.
-- * A waiter that hears of a late grant does not release it at once: the waiter that gave up has a pending release
--   for it. Otherwise a late message could take the lock from a waiter that had learned of its grant by a request, and
--   was already unlocking: its unlock would find nothing, and report a loss.
-- * A release can request its process's next tenure (cohort.go). If no other process is queued, the release makes the
--   next owner the holder, with its full lease. Otherwise it puts the next owner into the queue, and then serves the
--   first entry. The deadline counts from the send of the release.
-- * Redisson's waiters compete for a published release: see their turn in release.lua.
-- * While the slot is being migrated, the server refuses a script with two keys. The call is repeated without the
--   queue, and waiters poll.
--
-- Waiters of a Plain lock of the name, a string, are in the same queue. A Plain lock is not handed over: its key is
-- deleted, like in the pattern of the Redis documentation, so that other programs can take it at any moment. The first
-- waiter is notified that the lock is free, keeps its entry, and sends a request:
--
--   waiter B, of a Plain lock                    holder A, of any kind
--   acquire: held; queued, in mode p ------------>
--   sleeps                                       release: the key is gone; "!told"
--   <------------------------------- on B's channel: "0 0 B"
--   acquire: B is the first, granted; entry removed
--                                                acquire: free, but left to B: queues
--
-- * The free lock is left to B for the "first" of its entry, two of its round trips. Meanwhile no other caller of
--   this library gets the lock. Otherwise A, if it is nearer to the server than B, would release and acquire the lock
--   again before B's request arrives, every time (TestPlain_OneProcessIsNearer_FartherIsNotStarved).
-- * B's process has died: no process listens, so B's entry is removed, and the next waiter is served, in the same
--   call.
-- * B's process is stopped or slow, or the message is lost: after these ms the first request for a Plain lock is
--   granted, because its sender is alive. B keeps its entry if it sends a request before the next release. Otherwise
--   that release removes B, and serves the next waiter; if B is alive, its next request queues it anew. A request for a
--   hash removes B at once, and serves the next waiter. If all callers sleep, the lock is idle until a waiter polls,
--   for a PollCap at most.
-- * Another program takes the lock before B's request: the request finds that, removes "!told" and keeps B's entry,
--   so the next release notifies B again. The other program's release notifies no waiter, so waiters poll. Waiters also
--   send a request at the end of the lease that their last reply named.
-- * B was notified, and the lock changes hands quickly: "!told" still exists, so B is not notified twice.
-- * B leaves after it was notified: its release removes "!told" and its entry, finds the lock free, and serves the
--   next waiter.
-- * The script runs twice: the second run finds "!told", and publishes nothing.
-- * A waiter of a Fair or ReadWrite lock of the name is in a queue of its own, which this script does not serve: the
--   waiter polls.
-- uses: owners, queue

-- Makes the first waiter whose process listens send a request; "from" is the score from which it is searched. A release
-- by a program of another kind hands nothing over. A waiter hears such a release only if its last reply named such a
-- holder, and no message reports the end of such a holder's lease. So wherever a script of this library leaves the lock
-- to another program, the first waiter needs such a reply:
--
--   waiters B, C                 server                          A of ours, and Java
--   request: held by A --------> queue: B, C
--                                left to Java; "0 0 B" to B <---- A releases
--                                Java has it <------------------- takes it
--   B requests: Java's; B listens
--   B gives up ----------------> "0 0 C" to C
--   C requests: Java's; C listens
--                                its release is published <------ releases
--   C requests: granted
--
-- left is the score of a waiter that has left the queue, if nothing else has changed. A waiter before it is still the
-- first, and has its reply.
-- * Java releases before C's request arrives: C finds the lock free, and is granted it.
-- * Java releases between C's reply and its subscription: C sends one more request when the subscription is confirmed
--   (package wait).
-- * B's process has died: C is the first waiter that listens, and B's entry is removed when it is stale. If B dies
--   after its hint, C polls.
-- * The script runs twice: C sends two requests, or the second run finds B gone, and publishes nothing.
-- from is LAST_WAITERS to search the last waiters only. Returns whether there is such a waiter.
local function hint(q, left, from)
  local waiter, score = first_listening(q, from or '(0')
  if waiter and not (left and score <= left) then
    notify(q, waiter, 0, 0)
  end
  return waiter ~= nil
end

-- Returns which keys exist of a lock and its queue (if the script may use one): 3 both, 2 the lock, 1 the queue.
-- removed says that this script may have removed the lock's last field. While their slot is being migrated, the script
-- may not even read a key that it has removed, because the key would be made anew on the other node. Then it returns
-- nil, and nothing can be handed over.
local function existing_keys(lock, queue, removed)
  local existing
  if queue then
    existing = redis.pcall('EXISTS', lock, lock, queue)
  else
    existing = redis.pcall('EXISTS', lock, lock)
  end
  if type(existing) ~= 'table' then
    return existing
  elseif not removed then -- without removed the error goes to the caller
    return redis.call('EXISTS', lock, lock, queue or lock)
  end
end

-- Returns for how many ms from now a released lock is left to others; nil if it is not.
local function any_reservation_left(q)
  return reservation_left(q, 'open') or reservation_left(q, 'told')
end

-- Makes the first waiter whose process listens the holder of a free lock, and notifies that process. If the waiter
-- waits for a Plain lock, the lock is left to it. Returns the waiter's entry, and for how many ms the lock is left to
-- it. Returns nil if no waiter is queued, if the script cannot publish, or if the first entry is "me", which the caller
-- of hand_over grants itself.
--
-- No call may take long. If very many waiters are gone, some of their entries are removed, and a waiter that came late
-- and listens sends a request:
--
--   waiter B                     server                          holder A
--   requests: held by A -------> queue: 300 that are gone, B
--                                128 are removed; "0 0 B" to B <- releases
--   requests: 128 are removed; granted
--
-- * Such a request is granted the lock, although living waiters may have come before: another call would be needed to
--   find them.
-- * No process of the last 16 waiters listens, or the message is lost: B polls, and the next request is granted the
--   lock.
-- * The release runs twice: it removes 128 more entries, and B sends two requests.
local function hand_over(lock, q, me, released)
  local entry, ticket, waiter = next_waiter(q, '(0', me, released)
  if entry and entry ~= me and waiter.mode ~= 'x' then -- of a Plain lock, which is not handed over
    local ms_reserved = math.min(waiter.first, MAX_RESERVATION)
    if get_field(q, 'told') then
      ms_reserved = any_reservation_left(q)
    elseif notify(q, waiter, 0, 0) then
      set_instant(q, 'told', q.now + ms_reserved)
    else
      return nil
    end
    if ms_reserved then
      return entry, ms_reserved
    end
    dequeue(q, entry, waiter, '!told') -- it was notified, and sent no request in time
    return hand_over(lock, q, me, released)
  elseif ticket == 'empty' then
    redis.call('DEL', q.key) -- stamps without entries
  elseif ticket == 'unseen' then
    hint(q, nil, LAST_WAITERS)
  end
  if not entry or entry == me then
    return nil
  end
  dequeue(q, entry, waiter, '!told')
  redis.call('HSET', lock, waiter.owner, 1)
  set_expiry(lock, waiter.first)
  if notify(q, waiter, ticket, waiter.first) then
    return entry
  end
  redis.call('HDEL', lock, waiter.owner) -- the user may not publish there, so nothing was: the release is published instead
  requeue(q, entry, ticket)
end
