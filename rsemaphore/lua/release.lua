-- Release permits, and hand them over to waiters.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] queue  KEYS[5] shares
-- ARGV[1] an owner; or ids, 16 bytes each without a separator  ARGV[2] 0: of an owner; -1: ids, only if all are held
-- ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH  ARGV[5] channels of grants, without the process  ARGV[6] the process
-- ARGV[7] the owner's entry, if it may be in the queue; or ''
-- ARGV[8…] owner and entry of other callers that leave: each may have been granted its permits, or be queued, or
--   neither. The reply does not count their permits. Callers that leave a queue together share a call, so that no
--   caller among them is served meanwhile
-- Reply: 1, one integer: the only permit was held, and the queue is empty. Otherwise {the number of permits that were
--   held, with leases that are not over (-1: not all, and nothing is released), ms after which to send a request for
--   the first in the queue (-1: another process does), lease and base of waiters of this process that were served}
-- Twice: an id that is not held is not released again. Ids are never used again. Waiters of this process that the first
--   run served find their permits when they poll.
-- uses: ids, queue, serve, verbs
local count, permits, notes, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common case: one permit, and an empty queue. It makes no function, so it repeats the code of wake,
-- remove_permits and stored_count. A second run finds no permit, and continues with the code below.
--
-- It asks neither for the time nor for expired leases: these are given back by the next script that acquires, and while
-- the queue is empty no waiter misses them. So a permit whose lease is over counts as held if no script has given it
-- back: no other caller was granted it.
local existing = redis.call('EXISTS', count, count, count, count, notes, notes, queue)
if #ARGV[1] == 14 and ARGV[2] == '0' and ARGV[7] == '' and #ARGV == 7 and string.sub(ARGV[1], 14) == '1' and
    existing % 2 == 0 and existing >= 4 and -- the count exists, and the queue does not
    string.byte(ARGV[1], 9) % 128 < 64 and -- not of a tenant: see lib/tenants.lua
    redis.call('ZREM', permits, string.sub(ARGV[1], 1, 13) .. '\0\0\0') == 1 then
  if existing == 6 then
    redis.pcall('HDEL', notes, string.sub(ARGV[1], 1, 13) .. '\0\0\0')
  end
  local available = redis.pcall('INCRBY', count, '1')
  if type(available) == 'table' then
    if string.find(available.err, 'not an integer', 1, true) then
      return redis.error_reply('WRONGTYPE the count of a semaphore is not an integer')
    end
    -- No right to the count: the permit is put back with an expired lease. The next script of a user with the right
    -- gives it back.
    redis.call('ZADD', permits, redis.call('TIME')[1] .. '000', string.sub(ARGV[1], 1, 13) .. '\0\0\0')
    return available
  end
  if available > 0 and ARGV[4] ~= '' then
    if ARGV[4] == 'SPUBLISH' then
      redis.pcall('SPUBLISH', ARGV[3], string.format('%.0f', available))
    else
      redis.pcall('PUBLISH', ARGV[3], string.format('%.0f', available))
    end
  end
  return 1
end
-- libraries

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local store = ids_store(now, count, permits, notes)
return release(store, permits_queue(queue, KEYS[5], ARGV[4], ARGV[5], now, time[1] * 1000000 + time[2], ARGV[6]), existing % 2 == 1)
