-- Become a reader, or raise a reader's count.
-- uses: owners, raise, rw
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] this owner's timeout key
-- ARGV[1] owner  ARGV[2] wanted count  ARGV[3] lease, ms  ARGV[4] not after, server ms (0: any time)
-- ARGV[5] the owner of a write hold under which it reads, or ''  ARGV[6] channel  ARGV[7] PUBLISH or SPUBLISH
-- Reply {status, ms, server ms}: 1 granted; 0 there is a writer, or one waits that comes first, ms left of that (-1
--   without end); 2 too late, nothing done; 3 lost: the owner, or the one under which it reads, holds nothing
-- Twice: the count is set to what is wanted, never added to, and ends are only ever raised.
local lock, ends, timeout = KEYS[1], KEYS[2], KEYS[3]
local owner, want, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local writer = ARGV[5] ~= '' and ARGV[5] .. ':write'
local no, now = refuse(owner, want, lease, ARGV[4])
if no then
  return no
end
if not ends then
  return redis.error_reply('TRYAGAIN a read hold is more than one key, and their slot is being migrated')
end
local held = redis.call('HMGET', lock, 'mode', owner, writer or '')
local mode, count = held[1], held[2] and tonumber(held[2])
if count then
  local till = redis.call('ZSCORE', ends, owner)
  if till and tonumber(till) <= now and want > 1 then
    return {3, 0, now}
  end
elseif want > 1 then
  return {3, 0, now}
elseif writer then
  local till = redis.call('ZSCORE', ends, writer)
  if not held[3] or till and tonumber(till) <= now then
    return {3, 0, now}
  end
  local left = redis.call('PTTL', lock)
  if not till and left >= 0 then -- until now the writer's end was the lock's
    enter(ends, writer, now + left, now)
  end
else
  if mode == 'write' then
    if forget(lock, ends, now) then
      redis.pcall(ARGV[7], ARGV[6], '1')
    end
    mode = redis.call('HGET', lock, 'mode')
  end
  if mode == 'write' or not mode and redis.call('EXISTS', lock) == 1 then -- or it is another kind's
    return {0, redis.call('PTTL', lock), now}
  end
  while true do
    local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
    local rest = first[2] and -first[2] - now
    if not rest or rest <= 0 then
      break
    elseif rest <= tonumber(string.match(first[1], ' (%d+)$') or 0) then
      return {0, rest, now} -- a writer waits that comes first
    end
    -- Further ahead than it can be: the server's clock stepped back. Its writer sets it anew when it looks.
    redis.call('ZREM', ends, first[1])
  end
end
if not mode then
  redis.call('HSET', lock, 'mode', 'read', owner, want)
  redis.call('PEXPIRE', lock, lease)
  redis.call('ZREMRANGEBYSCORE', ends, 0, '+inf') -- of a lock that was deleted
else
  if not count or count < want then
    redis.call('HSET', lock, owner, want)
  end
  raise(lock, lease)
end
enter(ends, owner, now + lease, now)
if redis.call('PTTL', timeout) < lease then
  redis.call('SET', timeout, '1', 'PX', lease)
end
return {1, lease, now}
