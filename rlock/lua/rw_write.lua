-- Become the writer, or raise its count.
-- uses: owners, raise, rw, clock
-- KEYS[1] the lock  KEYS[2] its ends; without it (a slot is being migrated) the dead are not told from the living
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- ARGV[5] for how many ms, if it is refused, new readers wait for it; 0: they do not
-- ARGV[6] channel  ARGV[7] PUBLISH or SPUBLISH
-- Reply {status, ms, server ms}: 1 granted; 0 held by others, ms left (-1 without end); 2 too late, nothing done;
--   3 lost: the owner to be re-entered holds nothing
-- Twice: the count is set to what is wanted, never added to; leases are only ever raised, and never add up.
local lock, ends = KEYS[1], KEYS[2]
local owner, want, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local field, mark = owner .. ':write', tonumber(ARGV[5])
local no, now = refuse(owner, want, lease, ARGV[4])
if no then
  return no
end
local held = redis.call('HMGET', lock, 'mode', field)
local mode, count = held[1], held[2] and tonumber(held[2])
if count then
  local till = ends and redis.call('ZSCORE', ends, field)
  if till and tonumber(till) <= now and want > 1 then
    return {3, 0, now}
  end
  if count < want then
    redis.call('HSET', lock, field, want)
  end
  raise(lock, lease)
  if till then
    enter(ends, field, now + lease, now)
  end
  return {1, lease, now}
end
if want > 1 then
  return {3, 0, now}
end
if mode and ends then
  if forget(lock, ends, now) then
    redis.pcall(ARGV[7], ARGV[6], '1')
  end
  mode = redis.call('HGET', lock, 'mode')
end
if mode or redis.call('EXISTS', lock) == 1 then -- or it is another kind's
  if mark > 0 and ends then
    -- pcall: memory may be full
    if type(redis.pcall('ZADD', ends, digits(-now - mark), '!' .. owner .. ' ' .. ARGV[5])) == 'number' and redis.call('PTTL', ends) < mark then
      redis.call('PEXPIRE', ends, mark)
    end
  end
  return {0, redis.call('PTTL', lock), now}
end
redis.call('HSET', lock, 'mode', 'write', field, want)
redis.call('PEXPIRE', lock, lease)
if ends and redis.call('EXISTS', ends) == 1 then
  redis.call('ZREM', ends, '!' .. owner .. ' ' .. ARGV[5])
  redis.call('ZREMRANGEBYSCORE', ends, 0, '+inf') -- of a lock that was deleted
end
return {1, lease, now}
