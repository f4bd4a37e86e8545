-- Set the capacity, whatever it was, and wake the waiters if there is more now.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name
-- ARGV[1] new capacity  ARGV[2] the caller's old one, if the semaphore is not in use  ARGV[3] ms to remember it unused
-- ARGV[4] not after, server ms (0: any time)  ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH  ARGV[7] 1: shared with Redisson, no end
-- ARGV[8] id of this call
-- Reply {status, capacity before, server ms}: 1 done; 2 too late, nothing done
-- Twice: a second run of the same call finds its id in the notes, does nothing and replies the same, unless there was
--   another resize since. Then the capacity is set again, not added to; what is out stays out.
local count, permits, notes = KEYS[1], KEYS[2], KEYS[3]
local capacity, declared, keep, notafter = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local now = clock()
local done, was = string.match(redis.call('HGET', notes, 'before') or '', '^(%S+) (%d+)$')
if done == ARGV[8] then
  return {1, tonumber(was), now}
end
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local available = stored(count)
refuse_latch(KEYS[4], 'Semaphore')
local freed = prune(count, permits, notes, now)
local out = redis.call('ZCARD', permits)
local resized, shared = tonumber(redis.call('HGET', notes, 'capacity') or ''), ARGV[7] == '1'
local before = resized or declared
if available then
  available = available + freed
  before = available + out + lacking(count, resized, available, out)
  redis.call('INCRBY', count, number(capacity - out - available))
elseif shared then
  redis.call('SET', count, number(capacity - out))
else
  redis.call('SET', count, number(capacity - out), 'PX', keep)
end
if shared then
  redis.call('PERSIST', count)
  redis.call('PERSIST', permits)
end
redis.call('HSET', notes, 'keep', number(keep), 'capacity', number(capacity), 'before', ARGV[8] .. ' ' .. number(before))
last(count, permits, notes, now, keep)
if capacity - out > (available or before - out) or freed > 0 then
  tell(ARGV[6], ARGV[5], capacity - out)
end
return {1, before, now}
