-- The policy of the queue (queue.lua) of those that wait for permits; it is in the slot of the count. Every waiter has an entry, not every
-- process, so a process has one stamp, which keeps all of its entries.
--   "!p<base>" -> permits that have passed that entry since it was first in line, as a multiple of what it asks for: 0 to PASS
--   "!open" -> the instant until which "!jn" -> permits are left to Redisson's waiters
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
-- uses: clock, entry, queue, send

local MAX_PASSED, MAX_SERVED, MAX_DROPS = 4, 128, 512
local UNREADABLE = {owner = '', amount = 0, first = 0, leaves = 1, process = ''} -- in place of a text that is no entry: its caller has left

-- The label of a waiter's permits.
local function label_of(waiter)
  return string.sub(waiter.rest, 14)
end

-- Enters the queue, or finds the entry that is there. Returns the ticket. The first of each second removes stamps of processes that wait no
-- more, and neither numbers nor instants: see queue.lua.
local function enqueue_permits(q, entry)
  local ticket, _, is_first = enqueue(q, entry, 0)
  if is_first then
    redis.call('ZREMRANGEBYSCORE', q.key, digits(QUEUE_TTL - q.now), '-100000000000')
  end
  return ticket
end

-- Returns how many permits are left to Redisson's waiters now.
local function permits_reserved(q)
  return reservation_left(q, 'open') and get_field(q, 'jn') or 0
end

-- Leaves n permits to Redisson's waiters for a moment, if any waits and it is their turn: they are notified of them with the others.
local function reserve_for_java(q, channel, amount)
  if amount < 1 or not is_javas_turn(q, channel, 1) then
    return false
  end
  redis.call('ZADD', q.key, digits(-INSTANT - q.now - JAVA_RESERVATION), '!open', -(permits_reserved(q) + amount), '!jn')
  return true
end

-- Hands free permits of a store to those in the queue, in their order, until the first cannot be served.
--
-- Returns the grants of the caller's own process: lease and base, one after the other (lease 0: it is to ask); the ms after which the
-- caller's process is to look, -1: it is not; the first in line, nil: there is none; and the longest lease that was written.
local function serve_queue(q, store)
  local own_grants, messages, granted = {}, {}, {}
  local reserved = permits_reserved(q)
  local free, first, passed, passed_before, is_full = store.available - reserved, nil, 0, 0, false
  local served, granted_permits, longest = 0, 0, 0
  local kept, is_done = 0, false -- those that stay, the first in line and who is behind it: the lowest in the queue
  local dropped = 0
  repeat
    -- No more at first than may be served, and the next in line: to read 17 costs more than all the rest.
    local list = redis.call('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', kept, first and MAX_SEARCHED + 1 - kept or math.max(dropped > 0 and MAX_SERVED or 1, math.min(free, MAX_SEARCHED)) + 1)
    local dropped_members = {}
    for i = 1, #list, 2 do
      local entry, ticket = list[i], tonumber(list[i + 1])
      local waiter, part = read_entry(entry) or UNREADABLE, nil
      local amount, base, process, lease, channel = waiter.amount, waiter.owner, waiter.process, waiter.first, q.grants .. waiter.process
      local has_left = is_leaving(q, waiter)
      local is_dead = not has_left and not is_alive(q, waiter, ticket)
      if has_left or is_dead or amount > store.total then
        dropped = dropped + 1
        dropped_members[#dropped_members + 1], dropped_members[#dropped_members + 2], dropped_members[#dropped_members + 3] = entry, '!p' .. base, is_dead and '!' .. process or nil
        if not has_left and not is_dead then
          part, lease = '0 0 13 ', 0
        end
      elseif amount > free then
        kept = kept + 1
        if not first then
          passed_before = math.floor((get_field(q, 'p' .. base) or 0) * amount + .5)
          first, passed = waiter, passed_before
        end
      elseif first and passed + amount > MAX_PASSED * first.amount then
        is_done = true
        break
      elseif not first and served > 0 and (served >= MAX_SERVED or granted_permits + amount > store.most) then
        first, is_full, is_done = waiter, true, true
        break
      else
        store.put(base, amount, q.now + lease, label_of(waiter))
        redis.call('ZREM', q.key, entry, '!p' .. base)
        free, served, granted_permits, longest = store.available - reserved, served + 1, granted_permits + amount, math.max(longest, lease)
        if first then
          passed = passed + amount
        end
        part = digits(ticket) .. ' ' .. digits(lease) .. ' 13 '
        if process ~= q.conn then
          granted[channel] = granted[channel] or {}
          table.insert(granted[channel], {base, amount, entry, ticket})
        end
      end
      if part and process == q.conn then
        own_grants[#own_grants + 1] = digits(lease)
        own_grants[#own_grants + 1] = base
      elseif part then
        messages[channel] = (messages[channel] or '*') .. part .. base
      end
      if first and (free < 1 or passed >= MAX_PASSED * first.amount or kept > MAX_SEARCHED) then
        is_done = true
        break
      end
    end
    if #dropped_members > 0 then
      redis.call('ZREM', q.key, unpack(dropped_members))
    end
    if dropped >= MAX_DROPS then
      first, is_done = first or first_listening(q, LAST_WAITERS), true
    end
  until is_done or kept > MAX_SEARCHED or #list == 0
  if first and passed ~= passed_before and not is_full then
    redis.call('ZADD', q.key, -passed / first.amount, '!p' .. first.owner)
  end
  local look_in = -1
  if first then
    look_in = (is_full or dropped >= MAX_DROPS) and 0 or store.ends(first.amount, math.min(store.available, first.amount - 1))
    if reserved > 0 then
      look_in = look_in < 0 and JAVA_RESERVATION + 1 or math.min(look_in, JAVA_RESERVATION + 1)
    end
    if first.process ~= q.conn then
      local channel = q.grants .. first.process
      if look_in >= 0 and look_in < first.stale * 2 / 5 then -- before it asks by itself: an entry is stale after two and a half of its polls
        messages[channel] = (messages[channel] or '*') .. '0 ' .. digits(math.max(1, look_in)) .. ' 13 ' .. first.owner
      end
      look_in = -1
    end
  end
  for channel, text in pairs(messages) do
    if type(send(q.publish, channel, text)) == 'table' then -- no right: no one was notified
      for _, g in ipairs(granted[channel] or {}) do
        store.take(g[1], g[2])
        requeue(q, g[3], g[4])
      end
    end
  end
  if not first and not others_queued(q) then
    redis.pcall('DEL', q.key) -- stamps without entries, for which nothing breaks off
  end
  return own_grants, look_in, first, longest
end

-- Stamps the process as alive, if it waits already: who only releases does not wait.
local function stamp_process(q)
  redis.call('ZADD', q.key, 'XX', -q.now, '!' .. q.conn)
end
