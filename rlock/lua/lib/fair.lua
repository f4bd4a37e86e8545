-- Redisson's queue of a fair lock: a list of owners, first come first, and beside it a sorted set with the instant (ms)
-- after which each counts as dead, which is looked at when it is the first. A waiter of ours is dead when it has not looked
-- for its patience; Redisson's scores are sums: each adds its own patience to the score of the last waiter, and takes it off
-- all others' when it is served. So ours begins at least its patience above the score of one of Redisson's that is
-- last when it comes, and as high as one of ours that is. From then on whatever Redisson takes off, it takes off the
-- scores of those before it as well: it stays above them without anybody looking for them. So dead ones of ours cost one
-- patience together, none alive is dropped because Redisson was served, and no call goes through the queue
-- (TestFairScoresOutlastRedissonsSubtractions, TestDeadFairWaitersCostTheirPatienceTogether).
-- uses: owners, clock

local LINE_TTL = 3600000 -- beyond the last score: for queues whose waiters all died. Redisson sets none.
local MOST = 30000 -- the longest patience: see Client.patience
local DROPS = 250 -- how many dead one call takes out, so that no call is long; a waiter that is not served then asks again

-- The first in line that is not dead, and until when; the dead before it are dropped. If those are too many, the next
-- of the dead, until now.
local function front(queue, timeouts, now)
  for n = 0, DROPS do
    local head = redis.pcall('LINDEX', queue, 0)
    if type(head) ~= 'string' then -- nobody, or see emptied
      return nil
    end
    local till = tonumber(redis.call('ZSCORE', timeouts, head) or 0)
    if till > now then
      if till > now + MOST and ours(head) then
        -- Nobody's patience is going to be taken off any more before the next of Redisson's. These scores are too high if
        -- they were made to outlast the score of a waiter that has died, or if the clock stepped back.
        till = now + MOST
        for _, owner in ipairs(redis.call('LRANGE', queue, 0, DROPS)) do
          if not ours(owner) then
            break
          elseif tonumber(redis.call('ZSCORE', timeouts, owner) or 0) > till then
            redis.pcall('ZADD', timeouts, digits(till), owner) -- memory may be full
          end
        end
      end
      return head, till
    end
    if n == DROPS then
      return head, now
    end
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, head)
  end
end

-- Enter the queue, or stay in it.
local function line_up(queue, timeouts, owner, patience, now)
  local score = redis.call('ZSCORE', timeouts, owner)
  local till = math.max(now + patience, tonumber(score or 0))
  -- An owner that has a score stands in the list: both are written together, here and in Redisson. Where they have become of
  -- different length (one was deleted or evicted alone) the list is gone through.
  local stands, length = score, redis.call('LLEN', queue)
  if length == 0 then
    redis.call('DEL', timeouts)
    stands = false
  elseif length ~= redis.call('ZCARD', timeouts) then
    stands = false
    for _, other in ipairs(redis.call('LRANGE', queue, 0, -1)) do
      stands = stands or other == owner
    end
  end
  if not stands then
    local last = redis.call('LINDEX', queue, -1)
    if last then
      local before = tonumber(redis.call('ZSCORE', timeouts, last) or 0)
      till = math.max(till, ours(last) and before or before + patience)
    end
    redis.call('RPUSH', queue, owner)
  end
  redis.call('ZADD', timeouts, digits(till), owner)
  local ttl = LINE_TTL + tonumber(redis.call('ZREVRANGE', timeouts, 0, 0, 'WITHSCORES')[2]) - now
  redis.call('PEXPIRE', queue, digits(ttl))
  redis.call('PEXPIRE', timeouts, digits(ttl))
end

local function leave(queue, timeouts, owner)
  if redis.call('ZREM', timeouts, owner) == 1 then
    redis.call('LREM', queue, 1, owner)
  end
end

-- Publish to the first in line that the lock is free.
local function tell(head, publish, channel)
  if head then
    redis.pcall(publish, channel .. ':' .. head, '0')
  end
end
