-- The queue of the waiters for a lock, or for permits: a sorted set. It expires as one key. What its waiters are served with is a policy
-- of each package: handover.lua (first and plain), rwqueue.lua (phases), serve.lua (permits).
--
--   member               score
--   an entry (entry.lua) its ticket: the server's µs when it was entered, and more than the last one of its range. A writer's is WRITERS
--                        higher than that, so the first reader and the first writer are each found in O(log n)
--   "!<name>"            above -10^11: a number of the policy, with a minus
--                        down to -4*10^12: a stamp, -ms of the last request of an owner, or for permits of a process
--                        below: an instant of the policy, -INSTANT - ms
--
-- Stamps of processes stay when their entries go, so the first entry of each second removes those that are old. The ranges keep numbers and
-- instants from being taken for such stamps: a reading phase that began two minutes ago is to keep its beginning. An owner's stamp
-- goes with its entry. If it stayed, the queue would exist after its last waiter, and the next requests would not have their short path.
--
-- A waiter's turn, whatever the policy:
--
--   waiter B                                     holder A
--   acquire: held; queued, ticket T  ----------->
--   (its deadline will count from this send)     works
--   sleeps, stamps its entry at every poll
--                                                release: takes T out of the queue, writes B's hold with B's
--                                                own first lease, then publishes T, lease and owner
--   <------------------------------- on B's channel redlatch_grant:<connectionID>
--   checks that T is the ticket of its last "held" answer: it holds the lock
--   after a third of the short lease the watchdog raises it to the full one
--
-- * What is granted is written before anything is published: a process that acts on the message must find it. For the same reason nothing
--   is taken back once it is published: that it has no receivers here does not say that no one hears it, since a server passes it on to
--   its replicas, where a process may be subscribed: the primary would undo and serve another, and both would hold
--   (TestHolders_PrimaryAndReplicaSwap_ExcludeEachOther). So whether the process is there is asked before. Only a PUBLISH that is
--   refused, and so reached no one, is undone, with the same ticket.
-- * A process that is gone does not count, and its entry is dropped; one that is there but has not asked for long (stopped, cut off) is
--   dropped, too. A wrong count costs time: a waiter that is dropped asks again and queues anew, and one that is granted without
--   hearing of it finds out when it asks.
-- * A text that is no entry is dropped as one that is gone: no one can be notified of it.
-- * This runs twice: a waiter keeps its ticket, and what is granted is not in the queue any more.
--
-- The queue of a run is q = {key, publish, grants, now, us}: the key; PUBLISH or SPUBLISH; the channels of grants, without the process; the
-- server's ms and µs. Where a process has many entries, and is named in the reply, q has conn, the process that makes the call.
-- uses: clock, entry, listeners, send

local QUEUE_TTL = 60000 -- more than twice what any entry can ask for as its "stale after"
local WRITERS = 3000000000000000 -- more than a ticket, µs, until the year 2065; two of them are less than 2^53
local INSTANT = 4000000000000 -- more than an ms of the clock until the year 2096
local OPEN = 5 -- for so many ms what is free is left to Redisson's waiters,
local MOST_OPEN = 200 -- and for so many at most to anybody
local JAVA_SHARE = 8 -- of so many releases one is theirs
local LOOK = 16 -- so many in line are looked at for one that listens
local LATE = 'late'
local MOST_GONE = 128 -- so many at most are taken out by one search for the next

-- Returns the queue of a run; nil without its key. Outside a Cluster the two that follow may not be sent.
local function queue_of(key, publish, grants, now, us, conn)
  return key and {key = key, publish = publish or 'PUBLISH', grants = grants or 'redlatch_grant:', now = now, us = us, conn = conn}
end

-- A number or an instant of the policy; nil: it is not set.
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

-- The name of the stamp that keeps a waiter; of none where the text is no entry.
local function stamp_of(q, waiter)
  return '!' .. (waiter and (q.conn and waiter.process or waiter.owner) or '')
end

-- Enters the queue, or stamps the entry that is there. Returns its score, whether it is new, and whether it is the first of its second. from: 0,
-- or WRITERS
local function enter(q, entry, from)
  local score = from + q.us
  if redis.call('ZADD', q.key, 'NX', digits(score), entry) == 0 then
    if not q.conn then
      redis.call('ZADD', q.key, -q.now, stamp_of(q, read_entry(entry)))
    end
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
    return tonumber(redis.call('ZSCORE', q.key, entry))
  end
  local top = redis.call('ZRANGE', q.key, digits(from + WRITERS), '(' .. digits(from), 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, 2)
  local last = tonumber(top[1] ~= entry and top[2] or top[4]) or 0
  if last >= score then -- the clock stepped back
    score = last + 1
    redis.call('ZADD', q.key, digits(score), entry)
  end
  local is_first = math.floor(q.us / 1000000) ~= math.floor((last - from) / 1000000)
  if is_first then
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
  end
  return score, true, is_first
end

-- Takes an entry out, with its stamp and the marks that are named.
local function step_out(q, entry, ...)
  redis.call('ZREM', q.key, entry, not q.conn and stamp_of(q, read_entry(entry)) or entry, ...)
end

-- Puts an entry back whose grant could not be published. The last one's way back makes the queue anew.
local function put_back(q, entry, score)
  redis.call('ZADD', q.key, digits(score), entry, -q.now, stamp_of(q, read_entry(entry)))
  redis.call('PEXPIRE', q.key, QUEUE_TTL)
end

-- Reports whether anybody but "me" is in the queue.
local function others_wait(q, me)
  for _, entry in ipairs(redis.call('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, me and 2 or 1)) do
    if entry ~= me then
      return true
    end
  end
  return false
end

-- Reports whether a process listens to its channel of grants on this server, or no right is there to ask. Each is asked for once.
local function hears(q, process)
  q.heard = q.heard or {}
  if process ~= q.conn and q.heard[process] == nil then
    q.heard[process] = listeners(q.publish, q.grants .. process) ~= 0
  end
  return process == q.conn or q.heard[process]
end

-- Reports whether a waiter is there: it has asked of late, and its process listens. An instant that is far ahead is of before the server's
-- clock stepped back. No waiter of ours has a score of two WRITERS.
local function is_there(q, waiter, score)
  if score >= 2 * WRITERS then
    return false
  elseif waiter.process ~= q.conn and math.abs(q.now - score % WRITERS / 1000) > waiter.stale then
    local name = stamp_of(q, waiter)
    q.stamps = q.stamps or {}
    q.stamps[name] = q.stamps[name] or -(redis.call('ZSCORE', q.key, name) or 0)
    if math.abs(q.now - q.stamps[name]) > waiter.stale then
      return false
    end
  end
  return hears(q, waiter.process)
end

-- Reports whether the caller of a waiter is about to give up. What it is handed would not reach it in time, and be given back, a round
-- trip later; and the first in line have waited for longest, so of callers with little patience they are those that leave.
local function leaving(q, waiter)
  return waiter.leaves > 0 and begun(waiter.leaves, q.now)
end

-- The first waiter from a score on that is there: its text, its score, and what it says. "me" asks, so it is there. Those that are not are
-- dropped, and so are entries of "over", an owner that is released, which have been left behind where the queue could not be reached. A
-- head that goes takes its reservation along. If there is none: nil, and why: the queue is 'empty', or 'unreadable', or so many were
-- dropped that the others are 'unseen'.
local function next_waiter(q, from, me, over)
  for _ = 1, MOST_GONE do
    -- A queue of another type does not prevent a release: the owner is out of the lock already.
    local head = redis.pcall('ZRANGE', q.key, from, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    local entry, score = head[1], tonumber(head[2])
    if not entry then
      return nil, head.err and 'unreadable' or 'empty'
    end
    local waiter = read_entry(entry)
    if entry == me or waiter and waiter.owner ~= over and is_there(q, waiter, score) then
      return entry, score, waiter
    end
    step_out(q, entry, '!told')
  end
  return nil, 'unseen'
end

-- Publishes to a waiter's process that it was granted what it waits for; ms 0: that it is to ask. Returns false if publishing is denied.
local function notify(q, waiter, ticket, ms)
  return type(send(q.publish, q.grants .. waiter.process, digits(ticket) .. ' ' .. digits(ms) .. ' ' .. waiter.owner)) ~= 'table'
end

-- Returns the first waiter whose process listens, of LOOK from a score on, and its score; with LATE of those that came last.
local function listener(q, from)
  local line
  if from == LATE then
    line = redis.pcall('ZRANGE', q.key, '+inf', '(0', 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, LOOK)
  else
    line = redis.pcall('ZRANGE', q.key, from, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, LOOK)
  end
  for i = 1, line.err and 0 or #line, 2 do
    local waiter = read_entry(line[i])
    if waiter and hears(q, waiter.process) then
      return waiter, tonumber(line[i + 1])
    end
  end
end

-- For how many ms from now what is free is left to others; nil: it is not. A mark that is further ahead than one can be is of before the
-- server's clock stepped back. "open": to Redisson's waiters; "told": to the first in line, who is to ask.
local function left_to(q, name)
  local till = get_field(q, name)
  if till and not expired(till, q.now) and till - q.now <= MOST_OPEN then
    return till - q.now
  end
end

-- Reports whether a release is Redisson's to race for. Its clients race for what is published; where each release is handed over they would
-- never have any. Where any of them listens, one release in JAVA_SHARE is theirs. What several callers had, one after the other, counts as
-- often (turns), or it would be Redisson's turn the less often the more callers a process has.
local function is_javas(q, channel, turns)
  return q.us % JAVA_SHARE < turns and java_waits(q.publish, channel)
end

-- Publishes a release, and has our own waiters only wait for a moment.
local function open_to_java(q, channel, message)
  set_instant(q, 'open', q.now + OPEN)
  send(q.publish, channel, message)
end
