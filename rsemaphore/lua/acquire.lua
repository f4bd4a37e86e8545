-- Take permits for several waiters of one process, for each all or none, and serve the queue.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name  KEYS[5] queue
-- ARGV[1] capacity, then a colon and its revision if it has one: see revise  ARGV[2] not after, server ms (0: any time)  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] 1: shared with Redisson, the capacity on the server counts, and the keys have no end
-- ARGV[6] channels of grants, without the process  ARGV[7] the process
-- ARGV[8] 1: a request that cannot be served is queued; 0: it is not, and no request is served after a refused one
-- ARGV[9…] entry and lease in ms of each
-- Reply: server ms, one integer: the only request was granted, and no other was served. Otherwise {status, server ms, capacity, ms
--   until enough leases are over for the first request that was not served (-1: not known), ms after which to send a request for the
--   first in the queue (-1: another process does), 1 if Redisson may release permits, for each request: -1 granted, -2 more than the
--   total, -3 to be repeated, 0 not served, or the ticket of its entry; then lease and base of other waiters of this process that were
--   served}. status: 1 done; 2 too late, and 3 the capacity differs: nothing done, and the reply has no results of requests
-- Twice: permits that are held already are not taken again, their lease is only ever raised, and an entry keeps its ticket. Other waiters
--   of the process that a run served find their permits when they poll.
-- Every poll has a request for each waiter, and one call has 128 requests for up to 1,000 permits each. So only the first id of each is
-- read, and the others if it is held. If it was released by itself meanwhile, after a lost reply, the others may still be held: write_permits
-- then takes those that are missing. After 1,000 permits were read or written, requests with held permits have to be repeated, and all
-- others are queued.
-- uses: ids, kind, queue, verbs
local count, permits, notes, latch, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- The common case makes no function, so it repeats the code of clock, late and elapsed.
local time = redis.call('TIME')
local now, notafter = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
if notafter > 0 and now > notafter then
  return {2, now, 0, -1, -1, 0}
end
-- The first call of a client, which knows no server time, tries the commands of the release. A user who may not return a permit gets
-- none. Nothing is written: INCRBY without a number fails, after the server has looked at the rights and at the memory.
if notafter == 0 then
  local counts = redis.pcall('INCRBY', count, '')
  if type(counts) == 'table' and not string.find(counts.err, 'integer', 1, true) then
    return counts
  end
  redis.call('ZREM', permits, '')
  redis.call('ZMSCORE', permits, '')
end
local existing = redis.call('EXISTS', permits, permits, permits, permits, permits, permits, notes, notes, notes, latch, queue)
local bare = existing % 3 == 0 -- neither latch nor queue exists: permits count 6, notes 3
-- The common case: one permit, and one is free. All keys are read before the first write, and any other case is left to the code
-- below, which reads anew. So a run that breaks off here has done no more than a run that breaks off there:
--   first run: ZADD, INCRBY, its reply is lost     second run: its id is held, ZADD NX adds nothing, so the code below raises its lease
-- If a semaphore was resized, or has a revision, its capacity is in the notes, and its keys are kept for seven days and a minute. The
-- common case leaves them seven days and the rest of that minute, and the code below prolongs them, once a minute.
local base, label = string.match(bare and #ARGV == 10 and ARGV[9] or '', '^1 n 1 %d+ %d+ %d+ %S+ %S+ (.............)(.*)$')
if label then
  local text = redis.call('GET', count)
  local available, shared, capacity = tonumber(text or ''), ARGV[5] == '1', tonumber(ARGV[1]) -- nil: it has a revision
  if available and available > 0 and available <= 2147483647 and string.format('%.0f', available) == text then
    local out, over, left, ours, keep, last = 0, nil, redis.call('PTTL', count), nil, 0, nil
    if existing >= 6 then
      out, over = redis.call('ZCARD', permits), redis.call('ZRANGE', permits, '-inf', string.format('(%.0f', now), 'BYSCORE', 'LIMIT', 0, 1)[1]
      ours = redis.call('PTTL', permits)
    end
    local fits = capacity and (shared or available + out == capacity)
    if existing % 2 == 1 then -- there are notes
      local noted = redis.call('HMGET', notes, 'keep', 'capacity', 'revised')
      keep, last = tonumber(noted[1] or 0) or 0, redis.call('PTTL', notes)
      if noted[2] then
        fits = left == -1 or available + out == tonumber(noted[2]) -- else some of it was deleted: see missing_from_count
      end
      if not capacity then
        local wanted, revision = string.match(ARGV[1], '^(%d+):(%d+)$')
        local known, of = string.match(noted[3] or '', '^(%d+) (%d+)$')
        local same = known == revision and of == wanted
        if not noted[2] or not known or not same and tonumber(revision) >= tonumber(known) then
          fits = false
        end
      end
      local numbers = string.find((noted[1] or '1') .. ' ' .. (noted[2] or '1'), '^[1-9]%d* [1-9]%d*$')
      if not numbers or #(noted[1] or '') > 15 or #(noted[2] or '') > 10 or last < keep - 60000 or left >= 0 and left < keep - 60000 then
        fits = false -- what is no number, whole says
      end
    end
    -- Either both keys have an end, or none has: see extend_keys.
    if fits and not over and (left == -1 and (ours or -1) == -1 or not shared and left >= 0 and (ours or 0) >= 0) then
      local lease = tonumber(ARGV[10])
      if redis.call('ZADD', permits, 'NX', string.format('%.0f', now + lease), base .. '\0\0\0') == 1 then
        local need, counted = math.max(left, lease + 1), nil
        if left >= 0 and left < need then
          counted = redis.pcall('SET', count, string.format('%.0f', available - 1), 'PX', string.format('%.0f', need))
        else
          counted = redis.pcall('INCRBY', count, '-1')
        end
        if type(counted) == 'table' and counted.err then -- a permit that is out and not counted would be one too many for all others
          redis.call('ZREM', permits, base .. '\0\0\0')
          return counted
        end
        if left >= 0 and (ours or 0) < need then
          redis.call('PEXPIRE', permits, string.format('%.0f', need))
        end
        if label ~= '' then
          redis.pcall('HSET', notes, base .. '\0\0\0', label)
        end
        if (last or label ~= '') and (last or 0) <= lease then
          redis.call('PEXPIRE', notes, string.format('%.0f', lease + 1))
        end
        return now
      end
    end
  end
end
-- libraries

local store = ids_store(now, count, permits, notes, ARGV[5] == '1')
if not bare then
  refuse_latch(latch, 'Semaphore')
end
return acquire(store, queue_of(queue, ARGV[4], ARGV[6], now, time[1] * 1000000 + time[2], ARGV[7]), not bare and redis.call('ZCARD', queue) > 0)
