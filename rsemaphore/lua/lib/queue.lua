-- The queue of those that wait for permits: a sorted set in the slot of the count.
--   ticket (the server's µs when it was entered, and more than the last one) -> an entry (entry.lua). Its rest is 13 bytes, the base of
--     the waiter's permits, which is its owner, and the label. Every waiter has an entry, not every process.
--   "!<process>" -> -ms of the last call of that process: it keeps all of its entries
--   "!p<base>" -> -permits that have passed that entry since it was first in line, as a multiple of what it asks for: 0 to -PASS. In
--     permits the score would reach those of the stamps, which are removed when they are old: bytes are counted in permits, too.
--   "!java" -> -ms until which "!jn" -> -permits are left to Redisson's waiters
-- The first in line is the lowest score above 0. A dead queue expires as one key.
--
-- First come, first served, but not strictly: while the first in line cannot be served, the 16 behind it may go past it with
-- up to 4 times what it asks for in all, and then none. Without that a request for all permits has the others stand idle
-- while it waits for the last of them; with more, large requests starve.
--
--   waiter B, of 2                               holder A, of 2
--   acquire: too few; queued, ticket T  -------->
--   (its deadline will count from this send)     works
--   sleeps; its process asks for all of its
--   waiters in every poll
--                                                release: gives A's permits back, writes B's with B's own first
--                                                lease, takes T out of the queue, then publishes T, lease and base
--   <------------------------------- on B's channel redlatch_grant:<connectionID>, all of a process in one message
--   checks that T is the ticket of its last answer: it holds the permits
--   5 to 10 ms later the watchdog raises the short lease to the full one
--
-- * Every call serves: acquire, release, resize. A newcomer never takes what is free past a queue, except as serve lets it.
-- * Who listens is asked before a grant is written, and nothing is taken back that was published; see rlock's lib/handover.lua.
--   Only a publish that is refused, and so reached no one, is undone, with the same ticket.
-- * Waiters of the caller's own process are named in the reply, not published. If that reply is lost the process asks for all of
--   its waiters (wait.Waiters.PollAll), and finds the permits out under their bases.
-- * A waiter that wants more than there is in all, after a resize, is taken out and notified, which says so. It would block the
--   queue forever otherwise.
-- * What ends for want of a renewal is pruned by every call. One process comes by in time: that of the first in line, which is
--   notified in the reply or by "0 <ms>". If it dies any poll finds it.
-- * One script serves up to 128 waiters, and 1,000 permits, and takes out some 500 waiters that are gone or want more than there is, so that
--   it holds up no other script; then the next in line is notified. Where 500 were gone the next in line is not known, so a waiter that
--   came late and is there is notified:
--     release: the first 512 of 10,000 are gone; the last entry is of process B, which lives; "look" to B
--     B asks for its own, as in a poll: the next 512 are gone; B hears of it in the reply; and so on until one can be served
--   Any poll goes on likewise, so a lost message costs a poll.
-- * What is no entry at all is taken out as one that is gone: no one can be notified of it.
-- uses: clock, entry, listeners, send

local QUEUE_TTL = 60000 -- more than twice what any entry can ask for as its "stale after"
local LOOK, PASS, MOST, MOST_GONE = 16, 4, 128, 512
local JAVA_MS, JAVA_SHARE = 5, 8
local NOBODY = {base = '', amount = 0, first = 0, leaves = 1, process = ''} -- in place of a text that is no entry: its caller has left

-- The queue q = {key, publish, grants, conn, now, us, most}: of process conn, which makes the call; grants is a channel without the process;
-- most: permits that serve may hand out.

-- Returns what an entry says, its base and its label too; nil: it is not one.
local function read_waiter(entry)
  local waiter = read_entry(entry)
  if waiter then
    waiter.base, waiter.label = string.sub(waiter.rest, 1, 13), string.sub(waiter.rest, 14)
  end
  return waiter
end

-- Reports whether the caller of a waiter is about to give up. What it is handed would not reach it in time, and be given back, a round
-- trip later; and the first in line have waited for longest, so of callers with little patience they are those that leave.
local function leaving(waiter, now)
  return waiter.leaves > 0 and begun(waiter.leaves, now)
end

-- Reports whether anybody is in the queue.
local function lined_up(q)
  return redis.call('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1] ~= nil
end

-- Enters the queue, or finds the entry that is there. Returns the ticket.
local function enter(q, entry)
  local last = tonumber(redis.call('ZRANGE', q.key, 0, 0, 'REV', 'WITHSCORES')[2] or 0)
  local ticket = math.max(q.us, last + 1) -- the clock may have stepped back
  if redis.call('ZADD', q.key, 'NX', digits(ticket), entry) == 0 then
    ticket = tonumber(redis.call('ZSCORE', q.key, entry))
  end
  if math.floor(q.us / 1000000) ~= math.floor(last / 1000000) then -- the first of each second
    redis.call('PEXPIRE', q.key, QUEUE_TTL)
    redis.call('ZREMRANGEBYSCORE', q.key, digits(QUEUE_TTL - q.now), '-100000000000') -- stamps of processes that wait no more: no number of permits is so low
  end
  return ticket
end

-- Reports whether a process listens to its channel of grants on this server, or no right is there to ask. It is asked once in a
-- script.
local function hears(q, channel)
  q.heard = q.heard or {}
  if q.heard[channel] == nil then
    q.heard[channel] = listeners(q.publish, channel) ~= 0
  end
  return q.heard[channel]
end

-- Returns how many permits are left to Redisson's waiters now. A marker that is further ahead than one can be is of before the
-- server's clock stepped back.
local function reserved(q)
  local till = -(redis.call('ZSCORE', q.key, '!java') or 0)
  if not expired(till, q.now) and till <= q.now + JAVA_MS then
    return -(redis.call('ZSCORE', q.key, '!jn') or 0)
  end
  return 0
end

-- Leaves n permits to Redisson's waiters for a moment, if any waits and it is their turn. Redisson's clients race
-- for what is published; where each release is handed over they would never have any.
local function reserve(q, channel, n)
  if q.us % JAVA_SHARE ~= 0 or n < 1 or not java_waits(q.publish, channel) then
    return false
  end
  redis.call('ZADD', q.key, -(q.now + JAVA_MS), '!java', -(reserved(q) + n), '!jn')
  return true
end

-- Reports whether the process of a waiter is silent, or gone. stamp keeps what is known of processes.
local function silent(q, waiter, ticket, stamp)
  local who = waiter.process
  if who == q.conn then
    return false
  end
  stamp[who] = stamp[who] or -(redis.call('ZSCORE', q.key, '!' .. who) or 0)
  return q.now - math.max(stamp[who], ticket / 1000) > waiter.stale or not hears(q, q.grants .. who)
end

-- Returns one of those that came last whose process is there; nil: none is.
local function late_comer(q, stamp)
  local list = redis.call('ZRANGE', q.key, '+inf', '(0', 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, LOOK)
  for i = 1, #list, 2 do
    local waiter = read_waiter(list[i])
    if waiter and not silent(q, waiter, tonumber(list[i + 1]), stamp) then
      return waiter
    end
  end
end

-- Hands free permits of a store to those in the queue, in their order, until the first cannot be served.
--
-- Returns the grants of the caller's own process: lease and base, one after the other (lease 0: it is to ask); the ms after which the
-- caller's process is to look, -1: it is not; the first in line, nil: there is none; and the longest lease that was written.
local function serve(q, store)
  local own, words, granted, stamp = {}, {}, {}, {}
  local held = reserved(q)
  local spare, head, passed, was, full = store.available - held, nil, 0, 0, false
  local served, given, longest = 0, 0, 0
  local looked, enough = 0, false -- those that stay, the first in line and who is behind it: the lowest in the queue
  local dropped = 0
  repeat
    -- No more at first than may be served, and the next in line: to read 17 costs more than all the rest.
    local list = redis.call('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', looked, head and LOOK + 1 - looked or math.max(dropped > 0 and MOST or 1, math.min(spare, LOOK)) + 1)
    local drop = {}
    for i = 1, #list, 2 do
      local entry, ticket = list[i], tonumber(list[i + 1])
      local waiter, word = read_waiter(entry) or NOBODY, nil
      local n, base, who, lease, channel = waiter.amount, waiter.base, waiter.process, waiter.first, q.grants .. waiter.process
      local left = leaving(waiter, q.now)
      local gone = not left and silent(q, waiter, ticket, stamp)
      if left or gone or n > store.total then
        dropped = dropped + 1
        drop[#drop + 1], drop[#drop + 2], drop[#drop + 3] = entry, '!p' .. base, gone and '!' .. who or nil
        if not left and not gone then
          word, lease = '0 0 13 ', 0
        end
      elseif n > spare then
        looked = looked + 1
        if not head then
          was = math.floor(-(redis.call('ZSCORE', q.key, '!p' .. base) or 0) * n + .5)
          head, passed = waiter, was
        end
      elseif head and passed + n > PASS * head.amount then
        enough = true
        break
      elseif not head and served > 0 and (served >= MOST or given + n > q.most) then
        head, full, enough = waiter, true, true
        break
      else
        store.put(base, n, q.now + lease, waiter.label)
        redis.call('ZREM', q.key, entry, '!p' .. base)
        spare, served, given, longest = store.available - held, served + 1, given + n, math.max(longest, lease)
        if head then
          passed = passed + n
        end
        word = digits(ticket) .. ' ' .. digits(lease) .. ' 13 '
        if who ~= q.conn then
          granted[channel] = granted[channel] or {}
          table.insert(granted[channel], {base, n, entry, ticket})
        end
      end
      if word and who == q.conn then
        own[#own + 1] = digits(lease)
        own[#own + 1] = base
      elseif word then
        words[channel] = (words[channel] or '*') .. word .. base
      end
      if head and (spare < 1 or passed >= PASS * head.amount or looked > LOOK) then
        enough = true
        break
      end
    end
    if #drop > 0 then
      redis.call('ZREM', q.key, unpack(drop))
    end
    if dropped >= MOST_GONE then
      head, enough = head or late_comer(q, stamp), true
    end
  until enough or looked > LOOK or #list == 0
  if head and passed ~= was and not full then
    redis.call('ZADD', q.key, -passed / head.amount, '!p' .. head.base)
  end
  local look = -1
  if head then
    look = (full or dropped >= MOST_GONE) and 0 or store.ends(head.amount, math.min(store.available, head.amount - 1))
    if held > 0 then
      look = look < 0 and JAVA_MS + 1 or math.min(look, JAVA_MS + 1)
    end
    if head.process ~= q.conn then
      local channel = q.grants .. head.process
      if look >= 0 and look < head.stale * 2 / 5 then -- before it asks by itself: an entry is stale after two and a half of its polls
        words[channel] = (words[channel] or '*') .. '0 ' .. digits(math.max(1, look)) .. ' 13 ' .. head.base
      end
      look = -1
    end
  end
  for channel, text in pairs(words) do
    if type(send(q.publish, channel, text)) == 'table' then -- no right: no one was notified
      for _, g in ipairs(granted[channel] or {}) do
        store.take(g[1], g[2])
        redis.call('ZADD', q.key, digits(g[4]), g[3])
        redis.call('PEXPIRE', q.key, QUEUE_TTL) -- the last one's way back makes the queue anew
      end
    end
  end
  if not head and not lined_up(q) then
    redis.pcall('DEL', q.key) -- stamps without entries, for which nothing breaks off
  end
  return own, look, head, longest
end

-- Stamps the process as alive, if it waits already: who only releases does not wait.
local function refresh_process(q)
  redis.call('ZADD', q.key, 'XX', -q.now, '!' .. q.conn)
end
