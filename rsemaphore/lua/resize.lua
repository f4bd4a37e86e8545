-- Set the capacity, whatever it was, and serve those that wait. A waiter for more than the capacity is notified, and asks.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name  KEYS[5] queue
-- ARGV[1] new capacity  ARGV[2] the caller's old one, if the semaphore is not in use  ARGV[3] ms to remember it unused
-- ARGV[4] not after, server ms (0: any time)  ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH  ARGV[7] 1: shared with Redisson, no end
-- ARGV[8] id of this call  ARGV[9] 1: ARGV[1] is added to the capacity, which stays between 1 and 2^31-1
-- ARGV[10] channels of grants, without the process  ARGV[11] the process
-- Reply {status, capacity before, server ms, ms after which to ask for the first in line (-1: another process does), lease
--   and base of those of this process that were served}. status: 1 done; 2 too late, nothing done; 3 it would be out of
--   these bounds, nothing done
-- Twice: a second run of the same call finds its id in the notes, does nothing and replies the same, unless there was
--   another resize since. Then the capacity is set again, not added to; what is out stays out. A call that adds is remembered
--   for a minute, whatever comes after it, with 99 others of that minute:
--     A adds 2: done, its reply is lost     B sets 10     A is sent again: it must not make that 12
-- uses: clock, integer, kind, permits, queue, wake
local count, permits, notes, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local capacity, declared, keep, notafter = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local channel, publish, shared, call, relative = ARGV[5], ARGV[6], ARGV[7] == '1', ARGV[8], ARGV[9] == '1'
local now, us = clock()
local q = {key = KEYS[5], publish = publish, grants = ARGV[10], conn = ARGV[11], now = now, us = us}
local added, recent = redis.call('HGET', notes, 'added') or '', {}
for id, was, at in string.gmatch(added, '(%S+) (%d+) (%d+);') do
  if id == call then
    return {1, tonumber(was), now, -1}
  end
  if now - at < 60000 then
    recent[#recent + 1] = id .. ' ' .. was .. ' ' .. at .. ';'
  end
end
local done, was = string.match(redis.call('HGET', notes, 'before') or '', '^(%S+) (%d+)$')
if done == call then
  return {1, tonumber(was), now, -1}
end
if late(notafter, now) then
  return {2, 0, now, -1}
end
local available = stored(count)
local lined = redis.call('ZCARD', q.key) > 0 -- before anything is written
refuse_latch(latch, 'Semaphore')
local freed = prune(count, permits, notes, now)
local out = redis.call('ZCARD', permits)
local resized = whole(redis.call('HGET', notes, 'capacity'), 'capacity in the notes of a semaphore')
local before = resized or declared
if available then
  available = available + freed
  before = available + out + lacking(count, resized, available, out)
end
may_count(count)
if relative then
  capacity = before + capacity
  if capacity < 1 or capacity > 2147483647 then
    return {3, before, now, -1}
  end
  recent[#recent + 1] = call .. ' ' .. digits(before) .. ' ' .. digits(now) .. ';'
  redis.call('HSET', notes, 'added', table.concat(recent, '', math.max(1, #recent - 99)))
end
redis.call('HSET', notes, 'keep', digits(keep), 'capacity', digits(capacity), 'before', call .. ' ' .. digits(before))
if available then
  redis.call('INCRBY', count, digits(capacity - out - available))
elseif shared then
  redis.call('SET', count, digits(capacity - out))
else
  redis.call('SET', count, digits(capacity - out), 'PX', keep)
end
if shared then
  redis.call('PERSIST', count)
  redis.call('PERSIST', permits)
end
local free, own, look, head, longest = capacity - out, {}, -1, nil, 0
if lined then
  refresh_process(q)
  free, own, look, head, longest = serve(q, free, capacity, dealing(permits, notes, now))
  if free ~= capacity - out then
    redis.call('INCRBY', count, digits(free - capacity + out))
  end
end
prolong(count, permits, notes, now, math.max(keep, longest + 1))
if not head and (capacity - out > (available or before - out) or freed > 0) then
  wake_for(publish, channel, free)
end
local reply = {1, before, now, look}
for _, word in ipairs(own) do
  reply[#reply + 1] = word
end
return reply
