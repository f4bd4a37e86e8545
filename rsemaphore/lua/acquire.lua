-- Take permits, all or none.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name
-- ARGV[1] ids, 16 bytes each without anything between  ARGV[2] capacity  ARGV[3] lease, ms
-- ARGV[4] not after, server ms (0: any time)  ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH  ARGV[7] label, may be empty
-- ARGV[8] 1: shared with Redisson, the capacity on the server counts, and the keys have no end
-- Reply {status, ms, server ms, capacity}: 1 granted; 0 not enough, ms until enough leases are over (-1: not known);
--   2 too late, nothing done; 3 the capacity differs; 4 the capacity is less than the number of ids
-- Twice: an id that is out already is not taken again, and its lease is only ever raised.
-- uses: clock, kind, permits, wake
local count, permits, notes, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ids, capacity, lease, notafter = split(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local channel, publish, label, shared = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
local now = clock()
if late(notafter, now) then
  return {2, 0, now, 0}
end
local available = stored(count)
refuse_latch(latch, 'Semaphore')
local freed = prune(count, permits, notes, now)
local out = redis.call('ZCARD', permits)
local noted = redis.call('HMGET', notes, 'keep', 'capacity')
local keep, resized = tonumber(noted[1] or 0), tonumber(noted[2])
local fresh = not available
if fresh then -- never used, or expired, or deleted: the permits that are out stay out
  capacity = resized or capacity
  available = capacity - out
else
  available = available + freed
  local lacks = lacking(count, resized, available, out)
  if lacks ~= 0 then
    available = redis.call('INCRBY', count, digits(lacks))
    freed = freed + math.max(0, lacks) -- waiters are told of these as well
  end
end
local total = available + out
if total ~= capacity and not resized and not shared then
  return {3, 0, now, total}
end
local missing, ends = 0, {}
for i, id in ipairs(ids) do
  ends[i] = tonumber(redis.call('ZSCORE', permits, id) or 0)
  if ends[i] == 0 then
    missing = missing + 1
  end
end
if missing > available then
  if freed > 0 then
    wake_for(publish, channel, available)
  end
  if #ids > total then
    return {4, 0, now, total}
  end
  local nth = redis.call('ZRANGE', permits, missing - available - 1, missing - available - 1, 'WITHSCORES')
  local till = tonumber(nth[2] or FOREVER)
  return {0, till < FOREVER and till - now or -1, now, total}
end
if fresh then
  redis.call('SET', count, digits(available - missing), 'PX', math.max(redis.call('PTTL', permits), lease + 1))
elseif missing > 0 then
  redis.call('INCRBY', count, -missing)
end
local till = now + lease
for i, id in ipairs(ids) do
  if ends[i] < till then
    redis.call('ZADD', permits, digits(till), id)
  end
  if label ~= '' then
    redis.call('HSET', notes, id, label)
  end
end
if shared then
  redis.call('PERSIST', count)
  redis.call('PERSIST', permits)
end
prolong(count, permits, notes, now, math.max(lease + 1, keep)) -- no key expires before the last lease in it
if freed > 0 then
  wake_for(publish, channel, available - missing)
end
return {1, lease, now, total}
