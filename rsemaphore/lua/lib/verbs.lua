-- The verbs of a semaphore. A store is one layout of the held permits on the server:
--   ids.lua      an id for each permit, in Redisson's layout: a Semaphore
--   weights.lua  a record for each acquisition, whatever its weight: a WeightedSemaphore
--
-- A script makes the store for its run. A store has
--   now, record           the server's ms; the hash with "keep", and after a resize or revision "before", "added" and
--                         "revised"
--   largest, most         the largest capacity; the number of permits that one run may write
--   open(capacity)        reads the keys, and gives back permits whose leases are over. capacity counts if the semaphore is
--                         not in use. open sets
--     total, available    the total and the free number of permits; available is negative after a smaller capacity
--     freed               the number of permits that this run gave back: waiters are notified of them
--     resized, keep       whether the server's capacity counts, and for how many ms the keys are kept unused
--   check()               ends the script if the user could not finish a put
--   resize(capacity)      sets the capacity
--   known(base)           reports whether the first id of an acquisition is held
--   raise(base, n, ends_at, label)
--                         makes a known acquisition last until ends_at, or longer. False: only a part of it was held,
--                         and was given back
--   put(base, n, ends_at, label, share)
--                         writes an acquisition that is granted. share: false without a tenant (shares.lua)
--   take(base, n)         undoes put
--   ends(n, free)         ms until n permits are free, if free of them are free now; -1: not known
--   members(owner), member(id)
--                         the members of the leases for an owner "<13 bytes><number>", and for an id of 16 bytes
--   give_back(members, asked, kept, has_queue)
--                         gives members back. kept -1: only if the first asked members are all held; more than 0: all
--                         but kept of the first member. Returns how many permits of the first asked members were held
--                         (-1: not all, nothing was given back), or 0 and an error. It reads the keys itself.
--                         has_queue: others are in the queue, so it sets total
--   back                  how many permits give_back returned, for Redisson's share of them; nil: Redisson gets none
--   count()               writes the available number
--   save(ms, least)       writes the available number, and makes the keys last for ms, unless ms is 0. A new count lasts for
--                         least ms
--   foreign()             reports whether Redisson may give permits back, of which no script learns
--
-- A run breaks off only if the server refuses a command: the user has no right to it, or memory is full. The next run
-- finds each store as after a complete run:
--   acquire   check comes before the first put, and each put is counted before a waiter is queued, or by save. Entries
--             that were written into the queue stay there, and their waiters are refused again or served.
--   release   a member that was removed and not counted goes back into the leases with an expired lease. The next open gives
--             it back.
--   resize    the capacity and "before" are one write, so a second run of the call, which finds "before", finds the capacity,
--             too. The count of ids follows, for which check has found the right; a missing count is made from the
--             capacity.
--   revise    as resize.
-- uses: clock, entry, integer, queue, renewal, revision, serve, shares, tenants, wake

-- Wakes waiters that are in no queue. Redisson's waiters take an int.
local function wake_unqueued(store, q, channel)
  wake_for_permits(q.publish, channel, math.min(store.available, 2147483647))
end

-- Serves waiters, saves the store, and returns the reply. It appends the ms after which to send a request for the first
-- in the queue (-1: another process does), then lease and base of each waiter of the caller's process that was served.
-- ms: how long the keys last if no waiter was served.
--
--   run 1: gives 2 back, serves B of this process; its reply is lost      run 2: gives nothing back, serves the next one only if permits are free
--   B is held, and its process does not know it: the process polls for all of its waiters (wait.Waiters.PollAll), and
--   finds B held under its base
local function finish(store, q, channel, reply, has_queue, ms)
  local own_grants, look_in, first, longest, is_reserved = {}, -1, nil, 0, false
  if has_queue and store.total then
    stamp_process(q)
    is_reserved = store.back and reserve_for_java(q, channel, store.back)
    own_grants, look_in, first, longest = serve_queue(q, store)
  end
  store.save(longest > 0 and math.max(longest + 1, store.keep) or ms, 0)
  if store.freed > 0 and (is_reserved or not first) then
    wake_unqueued(store, q, channel)
  end
  reply[#reply + 1] = look_in
  for _, word in ipairs(own_grants) do
    reply[#reply + 1] = word
  end
  return reply
end

-- See acquire.lua. has_queue: others may be in the queue.
--
--   run 1: puts A; refuses B, which gets ticket 7; its reply is lost     run 2: A is known, its lease is only raised: -1
--                                                                        B: enqueue finds the entry, and returns ticket
--                                                                        7 again
--   between the runs A was released, by id or as a whole                 run 2: A is not known. It is put again if enough
--                                                                        permits are free. Its owner has a pending
--                                                                        release that follows, because its request got
--                                                                        no reply
local function acquire(store, q, has_queue)
  local now, channel, may_queue = store.now, ARGV[3], ARGV[8] == '1'
  local wanted, revision = string.match(ARGV[1], '^(%d+):?(%d*)$')
  local capacity = tonumber(wanted)
  store.open(capacity)
  if revision ~= '' then
    local newer, other = revise(store.record, capacity, tonumber(revision))
    if other then
      return {3, now, other, -1, -1, 0}
    end
    if newer then
      store.keep = REVISION_KEPT
      store.resize(capacity)
    end
  end
  local total = store.total
  if total ~= capacity and not store.resized then
    return {3, now, total, -1, -1, 0}
  end
  local own_grants, look_in, first, longest = {}, -1, nil, 0
  if has_queue and not may_queue then -- a waiter that can be served goes before a request that does not queue
    own_grants, look_in, first, longest = serve_queue(q, store)
  end
  local for_java = has_queue and permits_reserved(q) or 0
  if has_queue and next(freed_tenants) then
    of_shares(q).unpark(q)
  end
  local blocked = has_queue and others_active(q)
  local reply, free_in, refused, touched = {1, now, total, -1, -1, 0}, -1, false, 0
  for i = 9, #ARGV, 2 do
    local entry, lease = ARGV[i], tonumber(ARGV[i + 1])
    local waiter = read_entry(entry)
    local base, n, label = waiter.owner, waiter.amount, label_of(waiter)
    local is_held, must_repeat = store.known(base), touched > 0 and touched + n > store.most
    if is_held and not must_repeat then
      touched = touched + n
      is_held = store.raise(base, n, now + lease, label)
    end
    if is_held and must_repeat then
      reply[#reply + 1] = -3
    elseif is_held then
      reply[#reply + 1] = -1
      longest = math.max(longest, lease)
    elseif n > total then
      reply[#reply + 1] = -2
    elseif not blocked and n <= store.available - for_java and (touched == 0 or touched + n <= store.most) and not (waiter.mode == 't' and of_shares(q).must_wait(q, store, waiter, has_queue or refused)) then
      put_waiter(store, waiter, now + lease)
      touched = touched + n
      reply[#reply + 1] = -1
      longest = math.max(longest, lease)
    else
      if not refused then
        free_in = store.ends(n, math.min(store.available, n - 1))
      end
      refused, blocked = true, blocked or not (waiter.mode == 't' and of_shares(q).must_wait(q, store, waiter, has_queue or refused))
      if may_queue and touched > 0 then
        store.count() -- A of A and B was put, and the user may have no right to queue B
      end
      reply[#reply + 1] = may_queue and enqueue_permits(q, entry, waiter) or 0
    end
  end
  if may_queue and (refused or has_queue and others_queued(q)) then
    redis.call('ZADD', q.key, -now, '!' .. q.conn)
    store.most = store.most - touched
    local longest_served
    own_grants, look_in, first, longest_served = serve_queue(q, store)
    longest = math.max(longest, longest_served)
  end
  store.save(longest > 0 and math.max(longest + 1, store.keep) or 0, refused and may_queue and QUEUE_TTL or 0)
  if store.freed > 0 and not first then
    wake_unqueued(store, q, channel)
  end
  reply[4], reply[5] = free_in, look_in
  if refused and store.foreign() then
    reply[6] = 1
  end
  for _, word in ipairs(own_grants) do
    reply[#reply + 1] = word
  end
  return reply
end

-- See release.lua. has_queue: others may be in the queue. A second run finds no member that the first gave back, so it
-- counts nothing: held is 0, and -1 if all had to be held. For a part, the second run finds that kept is not less than
-- the held number.
local function release(store, q, has_queue)
  local kept, members = tonumber(ARGV[2]), nil
  if kept < 0 then
    members = {}
    for k = 1, #ARGV[1], 16 do
      members[#members + 1] = store.member(string.sub(ARGV[1], k, k + 15))
    end
  else
    members = store.members(ARGV[1])
  end
  local asked = #members
  for i = 8, #ARGV, 2 do
    for _, member in ipairs(store.members(ARGV[i])) do
      members[#members + 1] = member
    end
  end
  has_queue = has_queue and redis.pcall('ZCARD', q.key) -- a queue of another type prevents no release
  has_queue = type(has_queue) == 'number' and has_queue > 0
  for i = 7, has_queue and #ARGV or 0, 2 do
    if ARGV[i] ~= '' then
      local waiter = read_entry(ARGV[i])
      if waiter.mode == 't' then
        of_shares(q).leave(q, ARGV[i], waiter)
      else
        redis.call('ZREM', q.key, ARGV[i], '!p' .. waiter.owner)
      end
    end
  end
  local held, refused = store.give_back(members, asked, kept, has_queue)
  if refused then
    return refused
  end
  if held < 0 then
    return {-1, -1}
  end
  return finish(store, q, ARGV[3], {held}, has_queue, 0)
end

-- See resize.lua. A second run finds its call in "before", or in "added" after another resize, and returns the first
-- run's reply. It serves no waiter: waiters that the first run served poll by themselves.
local function resize(store, q)
  local now, capacity, keep, call, relative = store.now, tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[8], ARGV[9] == '1'
  local noted = redis.call('HMGET', store.record, 'added', 'before')
  local recent = {}
  for id, before_call, at_ms in string.gmatch(noted[1] or '', '(%S+) (%d+) (%d+);') do
    if id == call then
      return {1, tonumber(before_call), now, -1}
    end
    if now - at_ms < 60000 then
      recent[#recent + 1] = id .. ' ' .. before_call .. ' ' .. at_ms .. ';'
    end
  end
  local done, before_call = string.match(noted[2] or '', '^(%S+) (%d+)$')
  if done == call then
    return {1, tonumber(before_call), now, -1}
  end
  if late(ARGV[4], now) then
    return {2, 0, now, -1}
  end
  local has_queue = redis.call('ZCARD', q.key) > 0 -- before anything is written
  store.open(tonumber(ARGV[2]))
  store.check()
  local before = store.total
  if relative then
    capacity = before + capacity
    if capacity < 1 or capacity > store.largest then
      return {3, before, now, -1}
    end
    recent[#recent + 1] = call .. ' ' .. digits(before) .. ' ' .. digits(now) .. ';'
    redis.call('HSET', store.record, 'added', table.concat(recent, '', math.max(1, #recent - 99)))
  end
  redis.call('HSET', store.record, 'keep', digits(keep), 'capacity', digits(capacity), 'before', call .. ' ' .. digits(before))
  store.keep = keep
  store.resize(capacity)
  return finish(store, q, ARGV[5], {1, before, now}, has_queue, keep)
end

-- See extend.lua. leases is the part of a store that raises leases. key is its sorted set, and recorded(member) is 1 if
-- a member counts.
local function extend(leases)
  local now, lease, members = leases.now, tonumber(ARGV[1]), {}
  local keep = require_integer(redis.call('HGET', leases.record, 'keep'), 'time of a semaphore') or 0
  for i = 2, #ARGV do
    members[i - 1] = leases.member(ARGV[i])
    local ends_at, recorded = redis.call('ZSCORE', leases.key, members[i - 1]), leases.recorded(members[i - 1])
    if type(recorded) == 'table' then
      return recorded
    end
    if not ends_at or expired(ends_at, now) or recorded == 0 then
      return 0
    end
  end
  -- If memory is full, the server refuses ZADD as the first write of a script even if it adds nothing. It accepts ZREM.
  redis.call('ZREM', leases.key, '')
  for _, member in ipairs(members) do
    redis.call('ZADD', leases.key, 'XX', 'GT', digits(now + lease), member)
  end
  leases.prolong(math.max(lease + 1, keep))
  return 1
end

-- Renews the lease of an owner, if all members are held and not over. Returns the reply (renewal.lua), and whether the
-- lease was raised. A second run, or a run after the release, raises nothing: XX adds no member, and GT lowers none.
local function renew(leases, owner, lease)
  local now, lowest = leases.now, math.huge
  local members = leases.members(owner)
  local scores, recorded = redis.pcall('ZMSCORE', leases.key, unpack(members)), leases.recorded(members[1])
  if scores.err or type(recorded) == 'table' then
    return failed_reply(scores.err and scores or recorded), false
  end
  for _, ends_at in ipairs(scores) do
    if not ends_at or expired(ends_at, now) or recorded == 0 then
      return 0, false
    end
    lowest = math.min(lowest, tonumber(ends_at))
  end
  local raised = lease > 0 and lowest < now + lease
  if raised then
    -- If memory is full, the server refuses ZADD as the first write of a script even if it adds nothing. It accepts
    -- ZREM.
    redis.call('ZREM', leases.key, '')
    local add = {}
    for i, member in ipairs(members) do
      add[2 * i - 1], add[2 * i] = digits(now + lease), member
    end
    redis.call('ZADD', leases.key, 'XX', 'GT', unpack(add))
  elseif lease > 0 then
    -- Written even if it changes nothing, because replicas only confirm writes of this connection.
    local key_left = redis.call('PTTL', leases.key)
    if key_left >= 0 then
      redis.call('PEXPIRE', leases.key, key_left)
    end
  end
  return renewal_reply(lease, -1, lowest < leases.forever and lowest or nil, now), raised
end

-- Raises the lease of an owner at one key of its semaphore, while the slot is being migrated: see package lease. number
-- is the number of that key; the leases have number 2. except is the number of a key that keeps its expiry.
local function renew_part(leases, owner, lease, number, except)
  local reply = number == '2' and renew(leases, owner, lease) or 1
  local key_left = redis.call('PTTL', KEYS[1])
  if reply == 1 and number ~= except and lease > 0 and key_left >= 0 and key_left < lease + 1 then
    redis.call('PEXPIRE', KEYS[1], lease + 1)
  end
  return {reply}
end

-- See renew.lua. of(now, …) makes the leases of one semaphore from its keys; each is the number of keys of a semaphore.
local function renew_all(now, each, of, except)
  if #KEYS == 1 then
    return renew_part(of(now, nil, KEYS[1]), ARGV[1], tonumber(ARGV[2]), ARGV[3], except)
  end
  local replies = {}
  for i = 1, #KEYS / each do
    local leases = of(now, unpack(KEYS, each * (i - 1) + 1, each * i))
    local lease, raised = tonumber(ARGV[2 * i]), nil
    replies[i], raised = renew(leases, ARGV[2 * i - 1], lease)
    if raised then
      local keep = redis.pcall('HGET', leases.record, 'keep')
      leases.prolong(math.max(lease + 1, type(keep) == 'string' and tonumber(keep) or 0))
    end
  end
  return replies
end

-- See inspect.lua. view is the part of a store that only reads: look() returns the capacity and the number of held
-- permits, text(member) "<number> <label>" (with_tenant), id(member) the id. shares is the key of the flows.
local function inspect(view, shares)
  local capacity, used = view.look()
  local reply = {digits(view.now), capacity and digits(capacity) or '', digits(used)}
  local function add(id, ends_at, text)
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, digits(ends_at), text
  end
  if ARGV[1] ~= '0' then
    local out = redis.call('ZRANGE', view.key, digits(view.now), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
    for i = 1, #out, 2 do
      local text = view.text(out[i])
      if text then -- otherwise a part of its record was deleted
        add(view.id(out[i]), tonumber(out[i + 1]), text)
      end
    end
  end
  for i = 2, #ARGV do
    local member = view.member(ARGV[i])
    add(ARGV[i], tonumber(redis.call('ZSCORE', view.key, member) or 0), view.text(member) or '')
  end
  if ARGV[1] == '-1' then
    append_waiting(reply, shares)
  end
  return reply
end
