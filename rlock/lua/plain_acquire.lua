-- Take a plain mutex: one string key whose value is its owner, as in the Redis documentation's pattern (SET NX PX).
-- uses: owners, listeners, plain_queue, clock
-- KEYS[1] the lock  KEYS[2] its line; without it (a slot that is being migrated) no one queues
-- KEYS[3] with an entry: the queue of locks of this name that are a hash
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)  ARGV[4] channel  ARGV[5] PUBLISH or SPUBLISH
-- ARGV[6] entry, with which the owner stands in line if it is refused; '' or none: it does not. A free lock that is left to
--   another it does not get either
-- Reply as acquire: server ms, one integer, if it was free and is granted; otherwise {status, ms, server ms, …}: 1 granted;
--   0 held by another, or left to another for a moment: ms that either lasts (-1 without end), 1 if it stands in line,
--   1 if the holder is none of ours, and 2 more if the lock is a hash, 0, 0, without a line how many listen for its release; 2 too late, nothing done
-- Twice: the owner's own key is granted again, its lease only ever raised; an owner in line keeps its place.
local key, line, owner, lease, notafter = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The common case makes no function, so it says itself what fit, clock, late and left_to say.
if not (owner and owner ~= '' and lease and lease >= 1 and lease <= 4503599627370496 and lease % 1 == 0) then
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if notafter > 0 and now > notafter then
  return {2, 0, now}
end
local entry = line and ARGV[6] ~= '' and ARGV[6]
local first, score -- in line
if line then
  local head = redis.call('ZRANGE', line, 0, '+inf', 'BYSCORE', 'WITHSCORES', 'LIMIT', 0, 1)
  first, score = head[1], tonumber(head[2])
end
if (not first or first == entry) and redis.call('SET', key, owner, 'NX', 'PX', ARGV[2]) then
  if first then
    redis.call('ZREM', line, entry)
  end
  if entry then -- see stand_behind
    redis.call('ZREM', KEYS[3], (string.gsub(entry, ' ', ' 0 ')), '!' .. owner)
  end
  return now
end
-- libraries
local held, holder = redis.pcall('GET', key), 0
if type(held) == 'table' then -- not a string: it waits for a hash as for a string, or the command refuses again
  local left = redis.call('PTTL', key)
  holder = hash_holder(key, left) or redis.call('GET', key)
elseif not held then -- free, and another is the first in line
  if not left_to(score, now) then -- it was not notified, or it has not come: the lease has ended, or another program has released
    redis.call('SET', key, owner, 'PX', ARGV[2])
    if entry then
      step_out(line, KEYS[3], entry)
    end
    return now
  end
elseif held == owner then
  local left = redis.call('PTTL', key)
  if left >= 0 then
    left = math.max(left, lease)
    redis.call('PEXPIRE', key, left) -- a write in any case: see grant
  end
  if entry then
    step_out(line, KEYS[3], entry)
  end
  return {1, left, now}
elseif not ours(held) then
  holder = 1
end
local left = held and redis.call('PTTL', key) or score - now + 1 -- from then on it is reserved no more
if not entry then
  return {0, left, now, 0, holder, 0, 0, not line and listeners(ARGV[5], ARGV[4]) or 0}
end
if first == entry then
  redis.call('ZADD', line, 1, entry)
else
  redis.call('ZADD', line, 'NX', digits(time[1] * 1000000 + time[2]), entry)
end
redis.call('PEXPIRE', line, LINE_TTL)
if holder > 1 then
  stand_behind(KEYS[3], entry, now, time[1] * 1000000 + time[2])
end
return {0, left, now, 1, holder}
