-- The policy of the queue (queue.lua) of the waiters for permits. The queue is in the slot of the count. Each waiter
-- has an entry, not each process. So a process has one stamp, which keeps all of its entries alive.
--   "!p<base>"  the permits that have passed this entry since it was the first, as a multiple of its amount: 0 to
--   MAX_PASSED
--   "!open"     the instant until which "!jn" permits are reserved for Redisson's waiters
--
-- First come, first served, with one exception. While the first waiter cannot be served, the 16 waiters behind it may
-- pass it with up to 4 times its amount in all, and then none. Without the exception, a request for all permits would
-- keep the others idle while it waits for the last permit. With a larger limit, large requests would starve.
--
--   waiter B, of 2                               holder A, of 2
--   acquire: too few; queued, ticket T  -------->
--   (its deadline will count from this send)     works
--   sleeps; each poll of its process has
--   requests for all of its waiters
--                                                release: frees A's permits, writes B's with B's own first lease,
--                                                removes T from the queue, then publishes T, lease and base
--   <------------------------------- on B's channel redlatch_grant:<connectionID>, one message for each process
--   checks that T is the ticket of its last reply: it holds the permits
--   5 to 10 ms later the watchdog raises the short lease to the full lease
--
-- * Every call serves the queue: acquire, release, resize. A new request takes no free permits that serve_queue could
--   give to a waiter.
-- * Waiters of the caller's own process are named in the reply, not published. If that reply is lost, the process polls
--   for all of its waiters (wait.Waiters.PollAll), and finds the permits held under their bases.
-- * A waiter for more permits than the capacity, after a resize, is removed and notified. Otherwise it would block the
--   queue for ever.
-- * Each call gives back permits whose lease has ended. The process of the first waiter makes such a call in time: the
--   reply or the message "0 <ms>" asks for it. If that process dies, any poll does the same.
-- * One script serves up to 128 waiters and 1,000 permits, and removes some 500 waiters that are dead or want more than
--   the capacity, so that it does not delay other scripts. Then it notifies the next waiter. If 500 waiters were
--   removed, the next waiter is not known, so a late waiter that is alive is notified:
--     release: the first 512 of 10,000 are dead; the last entry is of process B, which lives; "0 1" to B
--     B polls for its waiters: the next 512 are dead; B learns of it by the reply; and so on until a waiter can be
--     served
--   Any poll continues in the same way, so a lost message costs a poll. A flow of tenants whose waiters were lost counts
--   as LOST such waiters: see shares.lua.
-- * Waiters with a tenant are served by their shares (shares.lua). Then "first" is the waiter that is next by its share.
-- uses: clock, entry, queue, send, shares, tenants

local MAX_PASSED, MAX_SERVED = 4, 128
local FINISHES_EVERY = 16 -- one entry of a tenant in so many removes up to 100 finishes
local UNREADABLE = {owner = '', amount = 0, first = 0, leaves = 1, process = ''} -- stands for a text that is no entry: it is dropped as if its caller had left

-- Returns the queue of a run: see queue_of. shares is the key of the tenants' waiters.
local function permits_queue(key, shares, ...)
  local q = queue_of(key, ...)
  q.shares, q.activated, q.dropped = shares or key, {}, 0
  return q
end

-- Returns the label of a waiter's permits.
local function label_of(waiter)
  return waiter.mode == 't' and share_of(waiter).label or string.sub(waiter.rest, 14)
end

-- Adds an entry to the queue, or finds the existing entry. Returns the ticket. The first entry of each second removes
-- the stamps of processes that do not wait any more, but neither numbers nor instants: see queue.lua. So many finishes
-- of tenants are removed at a time that no more stay than are made, whatever the number of tenants in a second.
local function enqueue_permits(q, entry, waiter)
  local ticket, is_first, _
  if waiter.mode == 't' then
    ticket, is_first = of_shares(q).enqueue(q, entry, waiter)
  else
    ticket, _, is_first = enqueue(q, entry, 0)
    if q.has_flows then
      of_shares(q).begin_plain(q)
    end
  end
  if is_first then
    redis.call('ZREMRANGEBYSCORE', q.key, digits(QUEUE_TTL - q.now), '-100000000000')
  end
  if waiter.mode == 't' and (is_first or q.us % FINISHES_EVERY == 0) then
    of_shares(q).remove_finishes(q)
  end
  return ticket
end

-- Writes the permits of a waiter.
local function put_waiter(store, waiter, ends_at)
  store.put(waiter.owner, waiter.amount, ends_at, label_of(waiter), waiter.mode == 't' and share_of(waiter))
end

-- Returns how many permits are reserved for Redisson's waiters now.
local function permits_reserved(q)
  return reservation_left(q, 'open') and get_field(q, 'jn') or 0
end

-- Reserves permits for Redisson's waiters for a moment, if one of them waits and it is their turn. The caller publishes
-- the number of available permits to them.
local function reserve_for_java(q, channel, amount)
  if amount < 1 or not is_javas_turn(q, channel, 1) or not others_queued(q) then
    return false
  end
  redis.call('ZADD', q.key, digits(-INSTANT - q.now - JAVA_RESERVATION), '!open', -(permits_reserved(q) + amount), '!jn')
  return true
end

-- Hands free permits of a store to the waiters in the queue, in their order, until the first waiter cannot be served.
-- Returns:
--
-- * the grants of the caller's own process: lease and base, one after the other (lease 0: the waiter has to send a
--   request)
-- * the ms after which the caller's process has to send a request for the first waiter; -1: another process does
-- * the first waiter; nil: the queue is empty
-- * the longest lease that was written
local function serve_queue(q, store)
  local own_grants, messages, granted = {}, {}, {}
  local reserved = permits_reserved(q)
  local free, first, passed, passed_before, is_full = store.available - reserved, nil, 0, 0, false
  local served, granted_permits, longest = 0, 0, 0
  if next(freed_tenants) then
    of_shares(q).unpark(q)
  end
  local kept, is_done = 0, false -- the entries at the head of the queue that stay: the first waiter, and waiters behind it
  repeat
    -- At first only as many entries as may be served, and the next: reading 17 would cost more than everything else.
    local list = next_entries(q, kept, first and MAX_SEARCHED + 1 - kept or math.max(q.dropped > 0 and MAX_SERVED or 1, math.min(free, MAX_SEARCHED)) + 1)
    local dropped_members = {}
    for i = 1, #list, 2 do
      local entry, ticket = list[i], tonumber(list[i + 1])
      local waiter, part = read_entry(entry) or UNREADABLE, nil
      local amount, base, process, lease, channel = waiter.amount, waiter.owner, waiter.process, waiter.first, q.grants .. waiter.process
      local has_left = is_leaving(q, waiter)
      local is_dead = not has_left and not is_alive(q, waiter, ticket)
      if has_left or is_dead or amount > store.total then
        q.dropped = q.dropped + 1
        dropped_members[#dropped_members + 1], dropped_members[#dropped_members + 2], dropped_members[#dropped_members + 3] = entry, '!p' .. base, is_dead and '!' .. process or nil
        if q.flow then
          of_shares(q).drop(q, ticket)
        end
        if not has_left and not is_dead then
          part, lease = '0 0 13 ', 0
        end
      elseif waiter.mode == 't' and of_shares(q).is_parked(q, store, waiter) then
        part = nil
      elseif amount > free then
        kept = kept + 1
        q.kept_flows = q.kept_flows or q.flow and true
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
        local charge, over
        if q.flow then
          charge, over = of_shares(q).charge_of(q, store.total, waiter)
        end
        put_waiter(store, waiter, q.now + lease)
        redis.call('ZREM', q.key, entry, '!p' .. base, over or entry)
        if charge then
          of_shares(q).drop(q, ticket)
          redis.call('ZADD', q.key, unpack(charge))
        end
        free, served, granted_permits, longest = store.available - reserved, served + 1, granted_permits + amount, math.max(longest, lease)
        if first then
          passed = passed + amount
        end
        part = digits(ticket) .. ' ' .. digits(lease) .. ' 13 '
        if process ~= q.conn then
          granted[channel] = granted[channel] or {}
          table.insert(granted[channel], {base, amount, entry, ticket, q.flow})
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
    if q.dropped >= MAX_DROPS then
      first, is_done = first or first_listening(q, LAST_WAITERS), true
    end
  until is_done or kept > MAX_SEARCHED or #list == 0
  if first and passed ~= passed_before and not is_full then
    redis.call('ZADD', q.key, -passed / first.amount, '!p' .. first.owner)
  end
  local look_in = -1
  if first then
    look_in = (is_full or q.dropped >= MAX_DROPS) and 0 or store.ends(first.amount, math.min(store.available, first.amount - 1))
    if reserved > 0 then
      look_in = look_in < 0 and JAVA_RESERVATION + 1 or math.min(look_in, JAVA_RESERVATION + 1)
    end
    if first.process ~= q.conn then
      local channel = q.grants .. first.process
      if look_in >= 0 and look_in < first.stale * 2 / 5 then -- before its own next poll: an entry is stale after two and a half polls
        messages[channel] = (messages[channel] or '*') .. '0 ' .. digits(math.max(1, look_in)) .. ' 13 ' .. first.owner
      end
      look_in = -1
    end
  end
  local is_undone = false
  for channel, text in pairs(messages) do
    if type(send(q.publish, channel, text)) == 'table' then -- the user may not publish, so no waiter was notified
      is_undone = granted[channel] and true or is_undone
      for _, grant in ipairs(granted[channel] or {}) do
        store.take(grant[1], grant[2])
        of_shares(q).requeue(q, grant[3], grant[4], grant[5])
      end
    end
  end
  if not first and not others_queued(q) then
    redis.pcall('DEL', q.key, q.shares) -- stamps without entries; a refusal does not end the script
  elseif not first and not is_undone and q.dropped < MAX_DROPS then -- all are parked, so a lease that ends may let one of them be served
    look_in = store.ends(1, 0)
  end
  return own_grants, look_in, first, longest
end

-- Stamps the process as alive, if it has a stamp already: a process that only releases has no waiters.
local function stamp_process(q)
  redis.call('ZADD', q.key, 'XX', -q.now, '!' .. q.conn)
end
