-- Redisson's queue of a fair lock: a list of owners, first come first, and beside it a sorted set with the instant (ms)
-- after which each counts as dead. A waiter of ours is dead when it has not looked for its patience; Redisson's scores
-- are sums: each adds its own patience to the score of who was last, and takes it off all others' when it is served.
-- So ours is at least the score of the last of Redisson's before it, plus its own patience: dead ones of ours cost one
-- patience together, and none alive is dropped because Redisson was served.
local QUEUE_TTL = 3600000 -- beyond the last score: for queues whose waiters all died. Redisson sets none.

-- The first in line that is not dead; the dead before it are dropped.
local function first(queue, timeouts, now)
  while true do
    local head = redis.call('LINDEX', queue, 0)
    if not head then
      return nil
    end
    local till = redis.call('ZSCORE', timeouts, head)
    if till and tonumber(till) > now then
      return head, tonumber(till)
    end
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, head)
  end
end

-- Enter the queue, or stay in it.
local function enter(queue, timeouts, owner, patience, now)
  local last = now
  local there = false
  for _, other in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if other == owner then
      there = true
      break
    end
    if not ours(other) then
      last = math.max(last, tonumber(redis.call('ZSCORE', timeouts, other) or 0))
    end
  end
  if not there then
    redis.call('RPUSH', queue, owner)
  end
  local till = math.max(last + patience, tonumber(redis.call('ZSCORE', timeouts, owner) or 0))
  redis.call('ZADD', timeouts, string.format('%.0f', till), owner)
  local ttl = QUEUE_TTL + tonumber(redis.call('ZREVRANGE', timeouts, 0, 0, 'WITHSCORES')[2]) - now
  redis.call('PEXPIRE', queue, string.format('%.0f', ttl))
  redis.call('PEXPIRE', timeouts, string.format('%.0f', ttl))
end

local function leave(queue, timeouts, owner)
  if redis.call('ZREM', timeouts, owner) == 1 then
    redis.call('LREM', queue, 1, owner)
  end
end

-- Tell the first in line that the lock is free.
local function tell(head, publish, channel)
  if head then
    redis.pcall(publish, channel .. ':' .. head, '0')
  end
end
