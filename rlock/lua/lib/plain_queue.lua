-- The line of a plain mutex's waiters: a sorted set, member = "<owner> <its reservation, ms>". Nothing is handed over: a
-- release deletes the key, as the pattern has it, so that other programs can take it at any moment. It tells the first in line to
-- ask. There is one entry for each process: the other waiters stand in line inside the process.
-- A score is one of
--   * the server's µs when the waiter came: it stands in line;
--   * the server's ms until which the free lock is left to it, counted from its message: less than any µs, so it stays
--     the first;
--   * 1: it was notified, asked, and found that another had been quicker. It stays the first.
--
--   waiter B                                     holder A
--   acquire: held; stands in line  ------------->  works
--   sleeps
--                                                release: deletes the key, tells the first
--   <------------------------------- on B's channel redlatch_grant:<connectionID>: "0 0 B"
--   acquire: it is the first, granted; out of the line
--                                                acquire: free, but left to B: stands in line, behind
--
-- * B has died: the message has no receiver, so B is taken out, and the next is notified, in the same call.
-- * B's process is stopped, or the message is lost: the lock is left to B for its reservation. A client of ours that asks meanwhile
--   learns how long that lasts, and one that asks later takes the lock. The next release finds that B has not come,
--   takes it out, and notifies the next; if B is alive it stands in line anew when it asks. If none asks, because all sleep,
--   the lock is idle until one of them polls, a PollCap at most.
-- * Another program takes the lock before B asks: B keeps its place, and is notified again. That program's release notifies no one;
--   waiters poll. So do waiters of a lock whose lease has ended, when it has ended by their last answer.
-- * A process that has not yet heard of any queue asks without a place. It has a place when it asks again; a waitTime of 0
--   never has one. It does not get what is left to B: A, that is nearer to the server than B, would release, ask and have the
--   lock again before B's request is there, every time (TestPlain_OneProcessIsNearer_FartherIsNotStarved).
-- * A message that is on its way is not sent again: a lock that changes hands quickly does not have B ask twice.
-- * B leaves after it was notified: its release, which takes it out of the line, finds the lock free and notifies the next.
-- * The lock's name may be held as a hash, by another kind of lock, while a service moves from one kind to the other. Then a waiter
--   stands in the queue of the hash's waiters, too (handover.lua), whose turn makes it the first to ask. And a release of this
--   lock hands it to the first of those, if that came before the first of this line:
--
--     Plain A                    server                             Reentrant B
--     holds the string
--                                                                   acquire: held, a string; stands in the queue
--     release: deletes the string, makes the hash, B's;  -------->  on B's channel of grants
--     acquire: held, a hash; stands in its line, and in B's queue
--                                                                   release: the hash is gone, the lock left to A for a moment
--     <-------------------------------------------------------------  "0 0 A"
--     acquire: it is free
--
-- * Who asks while the lock is a string stands in the line only. A release that hands the lock to one that waits for a hash puts those of
--   the line into that queue, each with the time at which it came:
--
--     Plain A                    server                             Reentrant B and C, Plain D, in the order B, D, C
--     holds the string           queue: B, C   line: D
--     release: makes the hash, B's; D into the queue  ------------>  on B's channel of grants
--                                                                   B's release: without D's entry the lock would be C's, then
--                                                                   B's again, and so on, until D polls
--     <-------------------------------------------------------------  "0 0 D"
--
--   If this release runs twice, the second finds a hash, or changes no place. D leaves: its release removes both entries. D's
--   process has died: its entry is dropped from the queue, and those behind it in line have theirs.
--
--   Other programs release without a word: waiters of both kinds poll. A Fair or ReadWrite lock's waiters stand in queues of their own,
--   which a Plain lock's release does not serve: they poll, too.
-- uses: handover, clock, send

local RESERVED = 200 -- at most
local LINE_TTL = 60000 -- more than twice the longest time between two requests of a waiter
local COME = 100000000000000 -- scores from here on are µs
local FOLLOW = 100 -- so many at most, the first

-- Whether the lock is left to one with this score. A time that is further ahead than one can be is of before the server's clock
-- stepped back.
local function left_to(score, now)
  return score > 1 and score < COME and not expired(score, now) and score <= now + RESERVED
end

-- What an entry of the line is called in the queue of the locks of this name that are a hash, and its stamp there.
local function behind(entry)
  return (string.gsub(entry, ' ', ' 0 ')), '!' .. (string.match(entry, '^%S+') or '')
end

-- Stand in that queue, or stamp the entry that is there.
local function stand_behind(queue, entry, now, us)
  enter(queue, (behind(entry)), now, us)
end

-- Leave the line, and that queue.
local function step_out(line, queue, entry)
  redis.call('ZREM', line, entry)
  redis.call('ZREM', queue, behind(entry))
end

-- Tell the first in line whose process is there that the lock is free. Returns whether one is
-- notified, now or before. Where very many are gone, one that came late is to ask: see hand_over.
local function tell(line, publish, grants, now)
  for _ = 1, MOST_GONE do
    local first = redis.pcall('ZRANGE', line, 0, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    local entry, score = first[1], tonumber(first[2])
    if not entry then
      return false
    elseif left_to(score, now) then
      return true
    end
    local owner, reservation = string.match(entry, '^(%S+) (%d+)$')
    local heard = 0
    if owner and (score <= 1 or score >= COME) then
      heard = send(publish, grants .. string.sub(owner, 1, 36), '0 0 ' .. owner)
    end
    if type(heard) ~= 'number' then
      return false -- no right to publish there: waiters poll
    end
    if heard > 0 then
      redis.pcall('ZADD', line, now + math.min(tonumber(reservation), RESERVED), entry) -- refused when memory is full
      return true
    end
    redis.call('ZREM', line, entry)
  end
  return hint(line, publish, grants, nil, LATE)
end

-- Have those in line stand in the queue of the locks that are a hash, to which the lock has been handed.
local function follow(line, queue, now)
  local all = redis.pcall('ZRANGE', line, COME, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, FOLLOW)
  local entries = {}
  for i = 1, #all, 2 do
    local n, entry, stamp = #entries, behind(all[i])
    entries[n + 1], entries[n + 2], entries[n + 3], entries[n + 4] = all[i + 1], entry, -now, stamp
  end
  if #entries > 0 then
    redis.pcall('ZADD', queue, 'NX', unpack(entries)) -- refused when memory is full: they poll
    redis.pcall('PEXPIRE', queue, QUEUE_TTL)
  end
end

-- See to the waiters of a free lock: first the first of the line or of the queue of the locks that are a hash, whichever came first;
-- if that is gone, the other's. A first in line that was notified before came before all.
local function pass_on(lock, line, queue, publish, grants, now)
  local head = redis.pcall('ZRANGE', queue, 0, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
  local waiter = head[1] and type(redis.pcall('EXISTS', lock)) == 'number' and head[1] -- see emptied
  if waiter and not string.find(waiter, '^%S+ 0 ') then -- or it is one of the line
    local first = redis.pcall('ZRANGE', line, 0, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] or tonumber(first[2]) > tonumber(head[2]) then
      local served, left = hand_over(lock, queue, publish, grants, now)
      if served and not left then
        follow(line, queue, now)
      end
      return served or tell(line, publish, grants, now)
    end
  end
  return tell(line, publish, grants, now) or waiter and hand_over(lock, queue, publish, grants, now)
end
