-- Acquire permits for several waiters of one process, for each all or none, and serve the queue.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name  KEYS[5] queue
-- KEYS[6] shares
-- ARGV[1] capacity, then a colon and its revision if it has one: see revise  ARGV[2] not after, server ms (0: any time)
-- ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] 1: shared with Redisson, the capacity on the server counts, and the keys have no expiry
-- ARGV[6] channels of grants, without the process  ARGV[7] the process
-- ARGV[8] 1: a refused request is queued; 0: it is not, and no request after it is served
-- ARGV[9…] entry and lease in ms of each request
-- Reply: server ms, one integer: the only request was granted, and no other waiter was served. Otherwise {status,
--   server ms, capacity, free in, look in, may be released, …}:
--     status           1 done; 2 too late, 3 the capacity differs: nothing is done, and no results follow
--     free in          ms until enough leases are over for the first refused request (-1: not known)
--     look in          ms after which to send a request for the first in the queue (-1: another process does)
--     may be released  1 if Redisson may release permits
--   Then for each request -1 granted, -2 more than the total, -3 to be repeated, 0 refused, or the ticket of its entry;
--   then lease and base of other waiters of this process that were served
-- Twice: permits that are held already are not taken again, their lease is only raised, and an entry keeps its ticket.
--   Other waiters of the process that a run served find their permits when they poll.
-- Every poll has a request for each waiter, and one call has 128 requests for up to 1,000 permits each. So only the
-- first id of each is read, and the others if the first is held. If the first was released by itself meanwhile, after a
-- lost reply, the others may still be held: write_permits then takes the missing ones. After 1,000 permits were read or
-- written, requests with held permits have to be repeated, and all others are queued.
-- uses: ids, kind, queue, serve, verbs
local count, permits, notes, latch, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- The common case makes no function, so it repeats the code of clock, late and elapsed.
local time = redis.call('TIME')
local now, notafter = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
if notafter > 0 and now > notafter then
  return {2, now, 0, -1, -1, 0}
end
-- The first call of a client, which knows no server time, tries the commands of the release and of the queue. A user
-- who may not return a permit gets none. Nothing is written: INCRBY without a number fails, after the server has looked
-- at the rights and at the memory.
if notafter == 0 then
  local count_reply = redis.pcall('INCRBY', count, '')
  if type(count_reply) == 'table' and not string.find(count_reply.err, 'integer', 1, true) then
    return count_reply
  end
  redis.call('ZREM', permits, '')
  redis.call('ZMSCORE', permits, '')
  redis.call('ZCOUNT', permits, 0, 0)
end
local existing = redis.call('EXISTS', permits, permits, permits, permits, permits, permits, notes, notes, notes, latch, queue)
local is_bare = existing % 3 == 0 -- neither latch nor queue exists: permits count 6, notes 3
-- The common case: one permit, and one is free. All keys are read before the first write, and any other case is left to
-- the code below, which reads anew. So a run that breaks off here has done no more than a run that breaks off there:
--   first run: ZADD, INCRBY, its reply is lost     second run: its id is held, ZADD NX adds nothing, so the code below raises its lease
-- If a semaphore was resized, or has a revision, its capacity is in the notes, and its keys are kept for seven days and
-- a minute. The common case does not prolong them before that minute is over. The code below does, once a minute.
local base, label = string.match(is_bare and #ARGV == 10 and ARGV[9] or '', '^1 n 1 %d+ %d+ %d+ %S+ %S+ (.............)(.*)$')
if label then
  local count_text = redis.call('GET', count)
  local available, shared, capacity = tonumber(count_text or ''), ARGV[5] == '1', tonumber(ARGV[1]) -- nil: it has a revision
  if available and available > 0 and available <= 2147483647 and string.format('%.0f', available) == count_text then
    local held_count, expired_id, count_left, permits_left, keep, notes_left = 0, nil, redis.call('PTTL', count), nil, 0, nil
    if existing >= 6 then
      held_count, expired_id = redis.call('ZCARD', permits), redis.call('ZRANGE', permits, '-inf', string.format('(%.0f', now), 'BYSCORE', 'LIMIT', 0, 1)[1]
      permits_left = redis.call('PTTL', permits)
    end
    local fits = capacity and (shared or available + held_count == capacity)
    if existing % 2 == 1 then -- there are notes
      local noted = redis.call('HMGET', notes, 'keep', 'capacity', 'revised')
      keep, notes_left = tonumber(noted[1] or 0) or 0, redis.call('PTTL', notes)
      if noted[2] then
        fits = count_left == -1 or available + held_count == tonumber(noted[2]) -- otherwise some keys were deleted: see missing_from_count
      end
      if not capacity then
        local wanted, revision = string.match(ARGV[1], '^(%d+):(%d+)$')
        local known_revision, known_capacity = string.match(noted[3] or '', '^(%d+) (%d+)$')
        local is_same = known_revision == revision and known_capacity == wanted
        if not noted[2] or not known_revision or not is_same and tonumber(revision) >= tonumber(known_revision) then
          fits = false
        end
      end
      local are_numbers = string.find((noted[1] or '1') .. ' ' .. (noted[2] or '1'), '^[1-9]%d* [1-9]%d*$')
      if not are_numbers or #(noted[1] or '') > 15 or #(noted[2] or '') > 10 or notes_left < keep - 60000 or count_left >= 0 and count_left < keep - 60000 then
        fits = false -- require_integer in the code below returns the error
      end
    end
    -- Either both keys have an end, or none has: see extend_keys.
    if fits and not expired_id and (count_left == -1 and (permits_left or -1) == -1 or not shared and count_left >= 0 and (permits_left or 0) >= 0) then
      local lease = tonumber(ARGV[10])
      if redis.call('ZADD', permits, 'NX', string.format('%.0f', now + lease), base .. '\0\0\0') == 1 then
        local need, count_reply = math.max(count_left, lease + 1), nil
        if count_left >= 0 and count_left < need then
          count_reply = redis.pcall('SET', count, string.format('%.0f', available - 1), 'PX', string.format('%.0f', need))
        else
          count_reply = redis.pcall('INCRBY', count, '-1')
        end
        if type(count_reply) == 'table' and count_reply.err then -- a permit that is held and not counted would be one too many
          redis.call('ZREM', permits, base .. '\0\0\0')
          return count_reply
        end
        if count_left >= 0 and (permits_left or 0) < need then
          redis.call('PEXPIRE', permits, string.format('%.0f', need))
        end
        if label ~= '' then
          redis.pcall('HSET', notes, base .. '\0\0\0', label)
        end
        if (notes_left or label ~= '') and (notes_left or 0) <= lease then
          redis.call('PEXPIRE', notes, string.format('%.0f', lease + 1))
        end
        return now
      end
    end
  end
end
-- libraries

local store = ids_store(now, count, permits, notes, ARGV[5] == '1')
if not is_bare then
  refuse_latch(latch, 'Semaphore')
end
return acquire(store, permits_queue(queue, KEYS[6], ARGV[4], ARGV[6], now, time[1] * 1000000 + time[2], ARGV[7]), not is_bare and redis.call('ZCARD', queue) > 0)
