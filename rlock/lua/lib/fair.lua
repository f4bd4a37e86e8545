-- Redisson's queue of a fair lock: a list of owners, first come first, and a sorted set with the instant (ms)
-- after which each counts as dead, which is looked at when it is the first. A waiter of ours is dead when it has not looked
-- for its patience; Redisson's scores are sums: each adds its own patience to the score of the last waiter, and takes it off
-- all others' when it is served. So ours begins at least its patience above the score of one of Redisson's that is
-- last when it comes, and as high as one of ours that is. From then on whatever Redisson takes off, it takes off the
-- scores of those before it as well: it stays above them without anybody looking for them. So dead ones of ours cost one
-- patience together, none alive is dropped because Redisson was served, and no call goes through the queue
-- (TestFair_WaitersDead_CostOnePatienceTogether).
--
-- Waiters of ours that hear grants have a place, too: a field of the hash "places", owner -> "<ticket> <entry>", with an entry as in our
-- queues (entry.lua), which is stale after the waiter's patience. A script that finds the lock free makes the first in
-- line its holder, in the same script, and publishes the ticket: the protocol and the rules of trust are those of the reentrant
-- lock's queue (handover.lua). A first in line without a place is notified on a channel of its own, as Redisson does, and the lock is
-- left to it: Redisson's waiters, and ours that hear no grants. So no one is served past them.
--
-- * A place that Redisson's scripts have dropped from the line leaves its field behind. If that waiter queues again it has the
--   same ticket, which no grant has named: a grant takes the field away.
-- * A process that has no subscription any more is dead, or lost its connection and is about to have another. The lock
--   is left to its waiter until that has not asked for half its patience; then it counts as dead. So a waiter does not lose its
--   place because its process connects anew (testdata/scripts/fair.txt).
-- * A waiter that is about to give up is passed over: what it is handed would not reach it in time, and be released again, a round trip
--   later. Callers that have less patience than the line is long all leave when they are the first, or nearly, so none would be
--   served, and the lock would pass from one that has left to the next. One whose caller
--   cancels is not known of before, and costs that round trip.
-- uses: owners, clock, entry, queue, send

local LINE_TTL = 3600000 -- beyond the last score: for queues whose waiters all died. Redisson sets none.
local MOST = 30000 -- the longest patience: see Client.patience
local NEAR = 15 -- the last place in which a waiter is looked for that is to ask
local DROPS = 250 -- how many dead one call takes out, so that no call is long; a waiter that is not served then asks again

-- Take the first out of the line. Each of the keys may be empty now: see emptied.
local function drop(queue, timeouts, places, head)
  redis.pcall('LPOP', queue)
  redis.pcall('ZREM', timeouts, head)
  if places then
    redis.pcall('HDEL', places, head)
  end
end

-- The first of ours in line whose process hears grants, and that process; nil: there is none near the front.
local function first_of_ours(q)
  local line = redis.pcall('LRANGE', q.key, 0, NEAR)
  for _, owner in ipairs(line.err and {} or line) do
    local process = string.sub(owner, 1, 36)
    if ours(owner) and hears(q, process) then
      return owner, process
    end
  end
end

-- Have the first of ours ask: see hint in handover.lua. Redisson's release calls the next in line on a channel of its own, on which ours
-- listens only if its last answer named a holder of Redisson's, or one in line before it:
--
--   waiters B, C of ours         server                          A of ours, Java
--   ask: held by A ------------> line: Java, B, C
--   B listens, right behind Java
--   B gives up ----------------> line: Java, C
--                                "0" to Java, "0 0 C" to C <----- A releases
--   C asks: Java is the first; C listens
--                                "0" to C <---------------------- Java takes it, and releases
--
-- * Java is through before C's answer: that answer is the lock.
-- * Redisson's scripts drop B, whose process has died, and call C: C polls.
local function hint_ours(q)
  local owner, process = first_of_ours(q)
  if owner then
    notify(q, {process = process, owner = owner}, 0, 0)
  end
end

-- The first in line that is not dead, until when, and how many of the dead may still be taken out; those before it are dropped.
-- If they are too many, the next of the dead, until now.
local function front(queue, timeouts, places, now, drops)
  while true do
    local head = redis.pcall('LINDEX', queue, 0)
    if type(head) ~= 'string' then -- none, or see emptied
      return nil
    end
    local till = tonumber(redis.call('ZSCORE', timeouts, head) or 0)
    if not expired(till, now) then
      if till > now + MOST and ours(head) then
        -- No patience is subtracted any more before the next of Redisson's. These scores are too high if
        -- they were made to outlast the score of a waiter that has died, or if the clock stepped back.
        till = now + MOST
        for _, owner in ipairs(redis.call('LRANGE', queue, 0, DROPS)) do
          if not ours(owner) then
            break
          elseif tonumber(redis.call('ZSCORE', timeouts, owner) or 0) > till then
            redis.pcall('ZADD', timeouts, digits(till), owner) -- memory may be full
          end
        end
      end
      return head, till, drops
    end
    if drops == 0 then
      return head, now, 0
    end
    drops = drops - 1
    drop(queue, timeouts, places, head)
  end
end

-- Enter the queue, or stay in it. entry: '' of a waiter that hears no grants. Returns its ticket, 0 if it has no place; and whether it came
-- right behind a waiter of Redisson's. An entry that does not say when its caller gives up takes nothing back that an earlier one said.
local function line_up(queue, timeouts, places, owner, patience, entry, now, us)
  local score, place = redis.pcall('ZSCORE', timeouts, owner), places and redis.pcall('HGET', places, owner)
  if type(score) == 'table' or type(place) == 'table' then -- see emptied
    return 0, true
  end
  local till = math.max(now + patience, tonumber(score or 0))
  -- An owner that has a score stands in the list: both are written together, here and in Redisson. Where they have become of
  -- different length (one was deleted or evicted alone) the list is gone through.
  local stands, length = score, redis.call('LLEN', queue)
  if length == 0 then
    redis.call('DEL', timeouts)
    if places then
      redis.call('DEL', places)
    end
    stands, place = false, nil
  elseif length ~= redis.call('ZCARD', timeouts) then
    stands = false
    for _, other in ipairs(redis.call('LRANGE', queue, 0, -1)) do
      stands = stands or other == owner
    end
  end
  local behind = false
  if not stands then
    local last = redis.call('LINDEX', queue, -1)
    if last then
      behind = not ours(last)
      local before = tonumber(redis.call('ZSCORE', timeouts, last) or 0)
      till = math.max(till, behind and before + patience or before)
    end
    redis.call('RPUSH', queue, owner)
    if places and redis.call('HLEN', places) > 2 * length + 64 then -- what Redisson's scripts have dropped, most of all
      local all = redis.call('HSCAN', places, 0, 'COUNT', DROPS)[2]
      for i = 1, #all, 2 do
        if not redis.call('ZSCORE', timeouts, all[i]) then
          redis.call('HDEL', places, all[i])
        end
      end
    end
  end
  redis.call('ZADD', timeouts, digits(till), owner)
  local last = tonumber(redis.call('ZRANGE', timeouts, 0, 0, 'REV', 'WITHSCORES')[2])
  local ttl = LINE_TTL + math.min(last - now, 24 * LINE_TTL) -- more than any that waits can ask for
  redis.call('PEXPIRE', queue, digits(ttl))
  redis.call('PEXPIRE', timeouts, digits(ttl))
  local ticket = 0
  if places then
    if entry == '' then
      redis.call('HDEL', places, owner)
    else
      ticket = place and tonumber(string.match(place, '^%d+')) or us
      if not place or read_entry(entry).leaves > 0 then
        redis.call('HSET', places, owner, digits(ticket) .. ' ' .. entry)
      end
    end
    redis.call('PEXPIRE', places, digits(ttl))
  end
  return ticket, behind
end

-- Leave the line. Returns whether it was the first of ours, if that is to be looked at.
local function leave(q, timeouts, places, owner, looks)
  local first = false
  if redis.call('ZREM', timeouts, owner) == 1 then
    first = looks and first_of_ours(q) == owner
    redis.call('LREM', q.key, 1, owner)
    if places then
      redis.pcall('HDEL', places, owner)
    end
  end
  return first
end

-- What a place says: its waiter, and the ticket; nil: nothing that can be counted with.
local function read_place(place)
  local ticket, entry = string.match(type(place) == 'string' and place or '', '^(%d+) (.*)$')
  return ticket and read_entry(entry), ticket
end

-- Make the first in line the holder of a free lock, and tell its process; or tell the first that the lock is free, if it is none
-- that can be handed it. Returns the new holder; or nil, the first in line and until when the lock is left to it. For "me" nothing
-- is done. key: nil if the lock may not be written any more, see emptied.
--
--   waiter B (of ours, first in line)            holder A
--   acquire: held; in line, ticket T ------------>
--   (its deadline will count from this send)
--                                                release: B's field and first lease are written, T, lease and owner are
--                                                published, B is taken out of the line
--   <-------------------------------- on the channel of grants of B's process
--
-- The field is written before anything is published, and nothing is taken back once it is: see hand_over. That no one
-- listens is asked before for the same reason.
local function pass(key, q, timeouts, places, channel, me)
  local drops, queue, now = DROPS, q.key, q.now
  while true do
    local head, till
    head, till, drops = front(queue, timeouts, places, now, drops)
    if not head or head == me then
      return nil, head, till
    end
    local waiter, ticket = read_place(key and places and redis.pcall('HGET', places, head))
    if waiter and leaving(q, waiter) and drops > 0 then
      drops = drops - 1
      drop(queue, timeouts, places, head)
    elseif not waiter or expired(till, now) then
      send(q.publish, channel .. ':' .. head, '0')
      if not me and not ours(head) then
        hint_ours(q)
      end
      return nil, head, till
    elseif hears(q, waiter.process) then
      redis.call('HSET', key, head, 1)
      set_end(key, waiter.first)
      if notify(q, waiter, tonumber(ticket), waiter.first) then
        drop(queue, timeouts, places, head)
        return head
      end
      -- no right to publish there, so nothing was: it finds the lock free when it asks
      redis.call('HDEL', key, head)
      return nil, head, till
    elseif not expired(till - waiter.stale / 2, now) then
      return nil, head, till - waiter.stale / 2
    elseif drops == 0 then
      return nil, head, now
    else
      drops = drops - 1
      drop(queue, timeouts, places, head)
    end
  end
end
