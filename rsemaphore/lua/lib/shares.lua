-- Shares of tenants: start-time fair queueing in the queue of the waiters for permits (queue.lua, serve.lua).
--
-- The calls of one tenant with one priority are a flow. Waiters without a tenant are a flow, too, of weight 1, while any
-- tenant waits. Each flow has a start, and the flow with the lowest start less its priority is served next. A grant of n
-- of the total permits moves the start of its flow by n / total / weight. So flows that always wait get permits in
-- proportion to their weights. A flow whose first waiter comes starts at the virtual time, so what it did not use
-- earlier counts for nothing: it is served soon, and not for long alone. Within a flow, first come first served.
--
-- Only the first waiter of a flow takes part in this order. So a waiter that leaves moves no start, and a flow that may
-- get nothing is passed over in one step, however many wait behind its first waiter.
--
--   queue     member                      score
--             an entry without a tenant   its ticket, as ever
--             an entry of a tenant        WRITERS + its µs, its ticket: served through its flow, not by this score
--             "~<flow>"                   the start of the flow less its priority: the flow has waiters and may be served.
--                                         "~" is the flow of waiters without a tenant
--             "!k<flow>"                  -1: the flow is parked, because its tenant holds its maximum
--             "!v"                        the virtual time: how far the flows have come
--             "!f<tenant>"                the finish of the tenant's last grant, while it is later than the virtual time;
--                                         "!f" is that of waiters without a tenant
--             "!w"                        the largest weight so far
--   shares    "<flow><ticket>", score 0: the waiters of each flow in their order. A flow is "<priority><length of
--             tenant>:<tenant>", so no flow begins another
--
-- With each grant the virtual time moves by n / total / (flows * largest weight), which is no faster than the flows move
-- together. So a stream of tenants that come once, or of a high priority, passes a waiter only until the virtual time is
-- at the waiter's start: nobody starves (TestShares_StreamOfNewTenants_StarvesNobody).
--
-- Flows that begin at the same virtual time are served in the order in which they began, because each beginning moves it
-- by the smallest step.
--
-- Without tenants there is no "~", so the first command of serve_queue finds that out, and nothing else is read. All is
-- forgotten with the queue's last waiter. If one of the two keys is lost, each poll of a waiter writes its part again:
--
--   waiters of 1,000 tenants; the places are lost
--   holder                                            waiter B, of one of the tenants
--   release: finds 64 flows without a place, and
--   removes them; has a late waiter's process poll
--                                                     poll: enqueue finds B's entry, and writes its place and its flow
--                                                     again; 64 other flows are removed; and so on until a flow has a
--                                                     waiter, which is served
-- uses: clock, entry, queue, tenants

local FIRST_START = 10 -- the first virtual time: more than the highest priority
local FIRST_TICKET = '1000000000000000' -- more than a start, less than a ticket
local BELOW_TENANTS = '(3000000000000000' -- FIRST_WRITER
local MAX_DROPS = 512 -- how many waiters one run removes because they do not wait any more
local LOST = 8 -- a flow or a place of which the other key was lost counts as so many, because each is read by itself
local MAX_UNPARKED = 128 -- tenants, whose flows one run lets take part again
local SMALLEST_STEP = 2.220446049250313e-16 -- from one double to the next, as a part of it

-- Returns the share in a waiter's entry: weight, max (0: none), priority, tenant, label, flow; nil without a tenant.
-- An entry of mode t has "<weight> <max> <priority> <length of tenant> <tenant><label>" behind its base.
local function share_of(waiter)
  if waiter.mode ~= 't' then
    return nil
  end
  if not waiter.share then
    local weight, max, priority, length, rest = string.match(string.sub(waiter.rest, 14), '^([1-9]%d*) (%d+) (%d) (%d+) (.*)$')
    local tenant = string.sub(rest or '', 1, tonumber(length or 0))
    waiter.share = {weight = tonumber(weight or 1), max = tonumber(max or 0), priority = tonumber(priority or 0), tenant = tenant,
      label = string.sub(rest or '', #tenant + 1), flow = (priority or '0') .. #tenant .. ':' .. tenant}
  end
  return waiter.share
end

-- Returns a start as text, exactly.
local function exact(start)
  return string.format('%.17g', start)
end

-- Lets a flow take part, from the virtual time or from its tenant's last finish, unless it takes part already. Waiters
-- without a tenant are a flow from then on. Reports whether the flow is new.
local function activate(q, flow, tenant, priority, weight)
  local scores = redis.call('ZMSCORE', q.key, '~' .. flow, '~', '!v', '!f' .. tenant, '!w')
  if scores[1] then
    return false
  end
  local virtual, finish, heaviest = -(scores[3] or -FIRST_START), -(scores[4] or 0), math.max(-(scores[5] or -1), weight)
  if not scores[2] and flow ~= '' and #redis.call('ZRANGE', q.key, FIRST_TICKET, BELOW_TENANTS, 'BYSCORE', 'LIMIT', 0, 1) > 0 then
    redis.call('ZADD', q.key, exact(virtual), '~')
    virtual = virtual * (1 + SMALLEST_STEP)
  end
  redis.call('ZADD', q.key, exact(math.max(virtual, finish) - priority), '~' .. flow, -heaviest, '!w', exact(-virtual * (1 + SMALLEST_STEP)), '!v')
  redis.call('ZREM', q.key, '!k' .. flow)
  return true
end

-- Adds the entry of a waiter with a share, or finds it. Returns its ticket, and whether it is the first entry of its
-- second. The first entry of a flow in a run lets a parked flow take part again: serve_queue parks it again if need be.
local function enqueue_share(q, entry, waiter)
  local share = share_of(waiter)
  local ticket, is_added, is_first = enqueue(q, entry, WRITERS)
  local is_new = redis.call('ZADD', q.shares, 0, share.flow .. digits(ticket)) == 1
  local began = false
  if is_new or not q.activated[share.flow] then
    q.activated[share.flow], q.has_flows = true, true
    began = activate(q, share.flow, share.tenant, share.priority, share.weight)
  end
  if is_first or began or not is_added then
    redis.call('PEXPIRE', q.shares, QUEUE_TTL)
  end
  return ticket, is_first
end

-- Makes the waiters without a tenant a flow, because tenants wait.
local function begin_plain(q)
  if not q.activated[''] then
    q.activated[''] = true
    activate(q, '', '', 0, 1)
  end
end

-- Removes an entry whose waiter has left. If its flow is parked, the next waiter may fit.
local function leave_share(q, entry, waiter)
  local share, ticket = share_of(waiter), redis.call('ZSCORE', q.key, entry)
  if ticket then
    redis.call('ZREM', q.key, entry, '!p' .. waiter.owner)
    redis.call('ZREM', q.shares, share.flow .. digits(ticket + 0))
    if redis.call('ZSCORE', q.key, '!k' .. share.flow) then
      activate(q, share.flow, share.tenant, share.priority, share.weight)
    end
  end
end

-- Puts an entry back whose grant could not be published, and its flow where it was.
local function requeue_share(q, entry, ticket, flow)
  requeue(q, entry, ticket)
  if flow then
    redis.call('ZADD', q.key, exact(flow.score), '~' .. flow.name)
  end
  if flow and flow.name ~= '' then
    redis.call('ZADD', q.shares, 0, flow.name .. digits(ticket))
    redis.call('PEXPIRE', q.shares, QUEUE_TTL)
  end
end

-- Lets the parked flows take part again whose tenants gave permits back in this run, of MAX_UNPARKED tenants at most.
-- The flows of others take part again with the next poll of one of their waiters: see enqueue_share.
local function unpark(q)
  local count = 0
  for tenant in pairs(freed_tenants) do
    local names = {}
    count = count + 1
    if count > MAX_UNPARKED then
      return
    end
    for priority = 0, 9 do
      names[priority + 1] = '!k' .. priority .. #tenant .. ':' .. tenant
    end
    for i, parked in ipairs(redis.call('ZMSCORE', q.key, unpack(names))) do
      if parked then
        activate(q, string.sub(names[i], 3), tenant, i - 1, 1)
      end
    end
    freed_tenants[tenant] = nil
  end
end

-- Removes the finishes that are not later than the virtual time, 100 at most. They no longer count.
local function remove_finishes(q)
  local virtual = redis.call('ZSCORE', q.key, '!v')
  local over = virtual and redis.call('ZRANGE', q.key, virtual, -FIRST_START, 'BYSCORE', 'LIMIT', 0, 100) or {}
  local finishes = {}
  for _, member in ipairs(over) do
    if string.sub(member, 1, 2) == '!f' then
      finishes[#finishes + 1] = member
    end
  end
  if #finishes > 0 then
    redis.call('ZREM', q.key, unpack(finishes))
  end
end

-- Appends {'', how many wait, tenant} to a reply for each flow, 1,000 at most.
local function append_waiting(reply, shares)
  local from = '-'
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', shares, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not head then
      return
    end
    local name = string.sub(head, 1, -17)
    local tenant = string.match(name, '^%d+:(.*)$')
    from = '(' .. (tenant and name .. ':' or head) -- a member without a tenant is another program's
    if tenant then
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = '', redis.call('ZLEXCOUNT', shares, '[' .. name, from), tenant
    end
  end
end

-- Returns the entry and the ticket of the first waiter of a flow, and whether there is another; nil if there is none.
local function head_of_flow(q, name)
  if name == '' then
    local list = redis.call('ZRANGE', q.key, FIRST_TICKET, BELOW_TENANTS, 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 2)
    return list[1], list[2], #list > 2
  end
  while q.dropped < MAX_DROPS do
    local places = redis.call('ZRANGE', q.shares, '[' .. name, '(' .. name .. ':', 'BYLEX', 'LIMIT', 0, 2)
    if not places[1] then
      return nil
    end
    local ticket = string.sub(places[1], #name + 1)
    local entry = redis.call('ZRANGE', q.key, ticket, ticket, 'BYSCORE', 'LIMIT', 0, 1)[1]
    if entry then
      return entry, ticket, #places > 1
    end
    q.dropped = q.dropped + LOST
    redis.call('ZREM', q.shares, places[1]) -- the queue was lost, and this place was not
  end
end

-- Returns the first waiter of the first flow that has one, {entry, ticket}, and sets q.flow. list is the head of the
-- queue behind the kept flows, which begins with a flow. Flows without waiters are removed. Without flows returns nil,
-- and nothing if the run has dropped MAX_DROPS: the flow may have waiters then.
local function next_of_flows(q, kept, list)
  repeat
    local name, score = string.sub(list[1], 2), tonumber(list[2])
    local entry, ticket, has_more = head_of_flow(q, name)
    if entry then
      q.flow = {name = name, tenant = string.match(name, '^%d+:(.*)$') or '', score = score, priority = tonumber(string.sub(name, 1, 1)) or 0, has_more = has_more}
      return {entry, ticket}
    end
    if q.dropped >= MAX_DROPS then
      return {}
    end
    q.dropped = q.dropped + LOST
    redis.call('ZREM', q.key, list[1])
    list = redis.call('ZRANGE', q.key, '(0', FIRST_TICKET, 'BYSCORE', 'WITHSCORES', 'LIMIT', kept, 1)
  until not list[1]
end

-- Removes the first waiter of the flow from its order.
local function drop_from_flow(q, ticket)
  if q.flow.name ~= '' then
    redis.call('ZREM', q.shares, q.flow.name .. digits(ticket))
  end
end

-- Reports whether a tenant would hold more than its maximum with the waiter's permits. If the leases were deleted, and
-- nothing is held, what is recorded of the tenant is over.
local function is_capped(store, waiter)
  local share = share_of(waiter)
  if not share or share.max == 0 then
    return false
  end
  local held = tenant_holds(store.record, share.tenant)
  if held > 0 and store.available >= store.total then
    redis.pcall('HDEL', store.record, TENANT_HOLDS .. share.tenant)
    held = 0
  end
  return held + waiter.amount > share.max
end

-- Reports whether a waiter may be given nothing but by serve_queue, although permits are free: it is capped, or its flow
-- has waiters, and it may be one of them itself.
local function must_wait(q, store, waiter, has_queue)
  local share = share_of(waiter)
  if not share then
    return false
  end
  local flow = has_queue and redis.call('ZMSCORE', q.key, '~' .. share.flow, '!k' .. share.flow) or {}
  return flow[1] or flow[2] or is_capped(store, waiter)
end

-- Parks the flow of a waiter that is capped. Reports whether it did.
local function is_parked(q, store, waiter)
  if not is_capped(store, waiter) then
    return false
  end
  local share = share_of(waiter)
  redis.call('ZREM', q.key, '~' .. share.flow)
  redis.call('ZADD', q.key, -1, '!k' .. share.flow)
  return true
end

-- Returns what a grant to a waiter writes into the queue, and the member that the grant removes from it. The flow is
-- charged, and has its place behind those that it has passed. Without other flows the waiters without a tenant are no flow
-- any more.
--
-- Only reads, so that a user without one of these rights is refused before the grant is written:
--
--   put_waiter, then charge     no right to ZCOUNT: the permits are held, and the flow is not charged, or the permits
--                               are not counted, because save does not come
--   charge_of, then put_waiter  no right to ZCOUNT: nothing is granted. The next call of a user with the right serves
local function charge_of(q, total, waiter)
  local flow, share, part = q.flow, share_of(waiter), waiter.amount / total
  local scores = redis.call('ZMSCORE', q.key, '!v', '!w', '!f' .. flow.tenant)
  local flows = redis.call('ZCOUNT', q.key, '(0', FIRST_TICKET)
  -- The finish is later than the start if another flow of the tenant was served.
  local finish = math.max(flow.score + flow.priority, -(scores[3] or 0)) + part / (share and share.weight or 1)
  local virtual = math.max(-(scores[1] or -FIRST_START) + part / (flows * -(scores[2] or -1)), flow.score)
  local changed = {exact(-virtual), '!v', exact(-finish), '!f' .. flow.tenant}
  if flow.has_more and (flow.name ~= '' or flows > 1) then
    changed[5], changed[6] = exact(finish - flow.priority), '~' .. flow.name
    return changed
  end
  return changed, '~' .. flow.name
end

-- Returns the functions for tenants, which are made when a run first needs them: most runs do not.
local function of_shares(q)
-- libraries
  q.of_shares = q.of_shares or {enqueue = enqueue_share, begin_plain = begin_plain, leave = leave_share, requeue = requeue_share, unpark = unpark,
    remove_finishes = remove_finishes, must_wait = must_wait, next = next_of_flows, drop = drop_from_flow, is_parked = is_parked, charge_of = charge_of}
  return q.of_shares
end

-- Reports whether a waiter may be served: not only waiters of tenants that hold their maximum are queued.
local function others_active(q)
  local first = redis.call('ZRANGE', q.key, '(0', BELOW_TENANTS, 'BYSCORE', 'LIMIT', 0, 1)[1]
  q.has_flows = first and string.byte(first) == 126
  return first and true
end

-- Returns the next entries in the order of service, and their tickets: at most count, behind the kept ones. If tenants
-- wait, it is one entry, and q.flow is its flow. After MAX_DROPS dropped entries there is none.
local function next_entries(q, kept, count)
  local list = redis.call('ZRANGE', q.key, '(0', BELOW_TENANTS, 'BYSCORE', 'WITHSCORES', 'LIMIT', kept, q.flow and 1 or count)
  q.flow = nil
  if string.byte(list[1] or '') == 126 then
    list = of_shares(q).next(q, kept, list)
    if list then
      return list
    end
    list = redis.call('ZRANGE', q.key, '(0', BELOW_TENANTS, 'BYSCORE', 'WITHSCORES', 'LIMIT', kept, count)
  end
  return q.kept_flows and {} or list
end
