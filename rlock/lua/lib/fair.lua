-- Redisson's queue of a fair lock has two keys: a list of owners in the order of their requests, and a sorted set with
-- the instant (ms) after which each waiter counts as dead. The instant matters when the waiter is the first. A waiter
-- of this library is dead when it has sent no request for its patience.
--
-- Redisson's scores are sums. Each of its waiters adds its own patience to the score of the last waiter. When the
-- waiter is served, its patience is subtracted from all other scores. So a new waiter of this library begins at least
-- its patience above the score of a last waiter of Redisson's, and at the same score as a last waiter of this library.
-- Whatever Redisson subtracts from the waiter's score later, it also subtracts from the scores before it, so the
-- waiter's score stays above them. Three things follow: dead waiters of this library cost one patience together; no
-- living waiter is removed because Redisson's waiters were served; and no call reads the whole queue
-- (TestFair_WaitersDead_CostOnePatienceTogether).
--
-- A waiter of this library that hears grants also has a field in the hash "places": owner -> "<ticket> <entry>". The
-- entry has the form of the other queues (entry.lua), and is stale after the waiter's patience. A script that finds the
-- lock free makes the first waiter its holder, and publishes the ticket. The protocol and the rules of trust are the
-- same as in the reentrant lock's queue (handover.lua). A first waiter without a place cannot be handed the lock: a
-- waiter of Redisson's, or one of this library that hears no grants. It is notified on a channel of its own, as
-- Redisson does, and the lock is left to it. So no other waiter overtakes it.
--
-- * Redisson's scripts may remove a waiter with a place from the queue, and its field remains. If that waiter queues
--   again, it gets the same ticket. No grant has had that ticket, because a grant removes the field.
-- * A process without a subscription is dead, or it lost its connection and will soon have another. The lock is left
--   to its waiter until that has sent no request for half its patience. Then the waiter counts as dead. So a waiter
--   keeps its place while its process connects anew (testdata/scripts/fair.txt).
-- * A waiter that is about to give up is passed over. A grant would not reach it in time, and would be released one
--   round trip later. Callers with less patience than the queue is long all give up when they are the first, or nearly.
--   Without this rule no caller would be served, and the lock would pass from one such caller to the next. The
--   script cannot foresee that a caller cancels; that costs a round trip.
-- uses: owners, clock, entry, queue, send

local FAIR_TTL = 3600000 -- after the last score, ms: for queues whose waiters all died. Redisson sets no expiry.
local MAX_PATIENCE = 30000 -- the longest patience: see Client.patience
local MAX_INDEX = 15 -- the last index at which first_listening_of_ours searches for a waiter
local MAX_DROPS = 250 -- the most dead waiters that one call removes, so that no call takes long; a waiter that is not served polls

-- Removes the first waiter from the queue. Each of the keys may be empty by now: see is_missing.
local function remove_head(q, timeouts, places, head)
  redis.pcall('LPOP', q.key)
  q.listed = nil
  redis.pcall('ZREM', timeouts, head)
  if places then
    redis.pcall('HDEL', places, head)
  end
end

-- Returns the first waiter of this library whose process hears grants, and that process; nil if no such waiter is near
-- the front.
local function first_listening_of_ours(q)
  local owners = redis.pcall('LRANGE', q.key, 0, MAX_INDEX)
  for _, owner in ipairs(owners.err and {} or owners) do
    local process = string.sub(owner, 1, 36)
    if is_ours(owner) and is_listening(q, process) then
      return owner, process
    end
  end
end

-- Makes the first waiter of this library send a request: see hint in handover.lua. Redisson's release notifies the next
-- waiter on a channel of its own. A waiter of this library listens there only if its last reply named a holder of
-- Redisson's, or a waiter of Redisson's right before it:
--
--   waiters B, C of ours         server                          A of ours, Java
--   request: held by A --------> queue: Java, B, C
--   B listens, right behind Java
--   B gives up ----------------> queue: Java, C
--                                "0" to Java, "0 0 C" to C <----- A releases
--   C requests: Java is the first; C listens
--                                "0" to C <---------------------- Java takes it, and releases
--
-- * Java acquires and releases before C's reply: that reply grants the lock to C.
-- * Redisson's scripts remove B, whose process has died, and notify C: C polls.
local function hint_ours(q)
  local owner, process = first_listening_of_ours(q)
  if owner then
    notify(q, {process = process, owner = owner}, 0, 0)
  end
end

-- Returns the first waiter that is not dead, the instant until which it counts as alive, and how many dead waiters may
-- still be removed. Dead waiters before it are removed. If they are too many, it returns the next dead waiter, and now
-- as the instant.
local function first_alive(q, timeouts, places, drops_left)
  local now = q.now
  while true do
    local head = redis.pcall('LINDEX', q.key, 0)
    if type(head) ~= 'string' then -- no waiter, or see is_missing
      return nil
    end
    local alive_until = tonumber(redis.call('ZSCORE', timeouts, head) or 0)
    if not expired(alive_until, now) then
      if alive_until > now + MAX_PATIENCE and is_ours(head) then
        -- No patience is subtracted any more before Redisson's next waiter. These scores are too high if they were made
        -- to outlast the score of a waiter that has died, or if the clock stepped back.
        alive_until = now + MAX_PATIENCE
        for _, owner in ipairs(redis.call('LRANGE', q.key, 0, MAX_DROPS)) do
          if not is_ours(owner) then
            break
          elseif tonumber(redis.call('ZSCORE', timeouts, owner) or 0) > alive_until then
            redis.pcall('ZADD', timeouts, digits(alive_until), owner) -- memory may be full
          end
        end
      end
      return head, alive_until, drops_left
    end
    if drops_left == 0 then
      return head, now, 0
    end
    drops_left = drops_left - 1
    remove_head(q, timeouts, places, head)
  end
end

-- Reports whether an owner is in the list. The whole list is read, once for all owners of a call.
local function is_in_list(q, owner)
  if not q.listed then
    q.listed = {}
    for _, other in ipairs(redis.call('LRANGE', q.key, 0, -1)) do
      q.listed[other] = true
    end
  end
  return q.listed[owner]
end

-- Puts a waiter into the queue, or refreshes its entry. entry is '' for a waiter that hears no grants. Returns the
-- waiter's ticket, 0 if it has no field in "places", and whether a waiter of Redisson's is right before it. An entry
-- without the instant at which its caller gives up does not remove that instant from an earlier entry.
local function enqueue_fair(q, timeouts, places, owner, patience, entry)
  local queue, now = q.key, q.now
  local score, place = redis.pcall('ZSCORE', timeouts, owner), places and redis.pcall('HGET', places, owner)
  if type(score) == 'table' or type(place) == 'table' then -- see is_missing
    return 0, true
  end
  local alive_until = math.max(now + patience, tonumber(score or 0))
  -- An owner with a score is also in the list, because both keys are written together, here and in Redisson. If their
  -- lengths differ (one key was deleted or evicted alone), the whole list is read.
  local is_listed, length = score, redis.call('LLEN', queue)
  if length == 0 then
    redis.call('DEL', timeouts)
    if places then
      redis.call('DEL', places)
    end
    is_listed, place = false, nil
  elseif length ~= redis.call('ZCARD', timeouts) then
    is_listed = is_in_list(q, owner)
  end
  local is_behind_redisson = false
  if not is_listed then
    local last = redis.call('LINDEX', queue, -1)
    if last then
      is_behind_redisson = not is_ours(last)
      local before = tonumber(redis.call('ZSCORE', timeouts, last) or 0)
      alive_until = math.max(alive_until, is_behind_redisson and before + patience or before)
    end
    redis.call('RPUSH', queue, owner)
    if q.listed then
      q.listed[owner] = true
    end
    if places and redis.call('HLEN', places) > 2 * length + 64 then -- most fields are of waiters that Redisson's scripts removed
      local fields = redis.call('HSCAN', places, 0, 'COUNT', MAX_DROPS)[2]
      for i = 1, #fields, 2 do
        if not redis.call('ZSCORE', timeouts, fields[i]) then
          redis.call('HDEL', places, fields[i])
        end
      end
    end
  end
  redis.call('ZADD', timeouts, digits(alive_until), owner)
  local last = tonumber(redis.call('ZRANGE', timeouts, 0, 0, 'REV', 'WITHSCORES')[2])
  local ttl = FAIR_TTL + math.min(last - now, 24 * FAIR_TTL) -- no request of a waiter can be later
  redis.call('PEXPIRE', queue, digits(ttl))
  redis.call('PEXPIRE', timeouts, digits(ttl))
  local ticket = 0
  if places then
    if entry == '' then
      redis.call('HDEL', places, owner)
    else
      ticket = place and tonumber(string.match(place, '^%d+')) or q.us
      if not place or read_entry(entry).leaves > 0 then
        redis.call('HSET', places, owner, digits(ticket) .. ' ' .. entry)
      end
    end
    redis.call('PEXPIRE', places, digits(ttl))
  end
  return ticket, is_behind_redisson
end

-- Removes a waiter from the queue. Returns whether the waiter was the first of this library, if find_first is set.
local function dequeue_fair(q, timeouts, places, owner, find_first)
  local first = false
  if redis.call('ZREM', timeouts, owner) == 1 then
    first = find_first and first_listening_of_ours(q) == owner
    redis.call('LREM', q.key, 1, owner)
    if places then
      redis.pcall('HDEL', places, owner)
    end
  end
  return first
end

-- Returns the waiter and the ticket of a field of "places"; nil if the text is no valid place.
local function read_place(place)
  local ticket, entry = string.match(type(place) == 'string' and place or '', '^(%d+) (.*)$')
  return ticket and read_entry(entry), ticket
end

-- Makes the first waiter the holder of a free lock, and notifies its process. If the first waiter cannot be handed the
-- lock, it is only notified that the lock is free. Returns the new holder; or nil, the first waiter, and the instant
-- until which the lock is left to it. Nothing is done for "me". key is nil if the lock may not be written any more: see
-- is_missing.
--
--   waiter B (of ours, first in the queue)       holder A
--   acquire: held; queued, ticket T ------------->
--   (its deadline will count from this send)
--                                                release: B's field and first lease are written; T, lease and owner are
--                                                published; B is removed from the queue
--   <-------------------------------- on the channel of grants of B's process
--
-- The field is written before anything is published, and nothing is undone afterwards: see hand_over. For the same
-- reason the script checks first that B's process listens.
local function hand_over_fair(key, q, timeouts, places, channel, me)
  local drops_left, now = MAX_DROPS, q.now
  while true do
    local head, alive_until
    head, alive_until, drops_left = first_alive(q, timeouts, places, drops_left)
    if not head or head == me then
      return nil, head, alive_until
    end
    local waiter, ticket = read_place(key and places and redis.pcall('HGET', places, head))
    if waiter and is_leaving(q, waiter) and drops_left > 0 then
      drops_left = drops_left - 1
      remove_head(q, timeouts, places, head)
    elseif not waiter or expired(alive_until, now) then
      send(q.publish, channel .. ':' .. head, '0')
      if not me and not is_ours(head) then
        hint_ours(q)
      end
      return nil, head, alive_until
    elseif is_listening(q, waiter.process) then
      redis.call('HSET', key, head, 1)
      set_expiry(key, waiter.first)
      if notify(q, waiter, tonumber(ticket), waiter.first) then
        remove_head(q, timeouts, places, head)
        return head
      end
      -- The user may not publish there, so nothing was: the waiter finds the lock free at its next request.
      redis.call('HDEL', key, head)
      return nil, head, alive_until
    elseif not expired(alive_until - waiter.stale / 2, now) then
      return nil, head, alive_until - waiter.stale / 2
    elseif drops_left == 0 then
      return nil, head, now
    else
      drops_left = drops_left - 1
      remove_head(q, timeouts, places, head)
    end
  end
end
