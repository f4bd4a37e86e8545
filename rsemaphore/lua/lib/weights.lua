-- What the scripts on weights share. A WeightedSemaphore has two keys of its own, and the queue:
--   main    a hash: "capacity"; "used", the sum of all that is out; after a resize "keep" and "before"
--           ("<call> <capacity>"); after a revision "keep" and "revised" ("<revision> <capacity>"); and of
--           each acquisition that is out: its base of 13 bytes -> "<weight> <label>"
--   leases  a sorted set: base -> the end of its lease, server ms
-- A number may be up to 2^53-1, to which a double is exact. What is added up here never is more: the sum of what is out and what is
-- available is the capacity, and what has been given in excess by a smaller capacity is negative.
-- An acquisition is one field and one member whatever its weight, so nothing here takes longer for a large one.
-- uses: clock, integer, wake

-- Returns the weight and the label in a text of an acquisition; nil: there is none.
local function read_weight(text)
  if text then
    local n, label = string.match(text .. ' ', '^(%d+) (.-) ?$')
    return whole(n or text, 'weight of an acquisition'), label
  end
end

-- Returns the weight and the label of what is out under a base; nil: nothing is.
local function weight_of(main, base)
  return read_weight(redis.call('HGET', main, base))
end

-- Writes an acquisition. The lease of one that is out is only ever raised. A lease without a weight, where the second is refused, counts as
-- nothing. A weight without a lease would be out for ever.
local function weigh(main, leases, base, n, till, label)
  redis.call('ZADD', leases, 'GT', digits(till), base)
  redis.call('HSET', main, base, digits(n) .. ' ' .. label)
end

-- Gives acquisitions back, 1,000 at most, whether or not they are over. Returns how much that is, which "used" lacks then.
--
-- "used" is written here: a script that is broken off later would leave weights that are neither out nor free. ZREM comes first, because a
-- server without memory refuses HSET as the first write. Without a right the weights are out as before, and their leases over: a user who
-- has the right gives them back.
local function give_back(main, leases, bases, used, now)
  local freed, back = 0, {}
  for i, text in ipairs(redis.call('HMGET', main, unpack(bases))) do
    if text then
      freed = freed + read_weight(text)
      back[#back + 1] = digits(now - 1)
      back[#back + 1] = bases[i]
    end
  end
  redis.call('ZREM', leases, unpack(bases))
  local done = redis.pcall('HSET', main, 'used', digits(used - freed))
  if type(done) == 'number' then
    done = redis.pcall('HDEL', main, unpack(bases))
    if type(done) == 'table' then
      redis.call('HSET', main, 'used', digits(used))
    end
  end
  if type(done) == 'table' then
    if #back > 0 then
      redis.call('ZADD', leases, unpack(back))
    end
    error(done)
  end
  return freed
end

-- Gives back what is over, 1,000 acquisitions at most: as prune of permits does. Returns the capacity (nil: the semaphore is not in use),
-- what is used, whether it was resized, and how much was given back.
--
-- If only one of the keys was deleted, all is given back: what is out follows from both. Its holders find out at their next
-- renewal, which finds nothing. The leases may also be gone because the last of them is over, and main is kept after a resize.
local function weighed(main, leases, now)
  local noted = redis.call('HMGET', main, 'capacity', 'used', 'before', 'revised', 'keep')
  whole(noted[5], 'time of a semaphore') -- it is used when all else is written
  local capacity, used, freed = whole(noted[1], 'capacity of a semaphore'), whole(noted[2], 'use of a semaphore') or 0, 0
  if not capacity then
    redis.call('DEL', leases)
    return nil, 0, false, 0
  end
  if used > 0 and redis.call('EXISTS', leases) == 0 then
    local gone = {}
    local all = redis.call('HGETALL', main)
    for i = 1, #all, 2 do
      if #all[i] == 13 then
        gone[#gone + 1] = all[i]
      end
    end
    for i = 1, #gone, 1000 do
      redis.call('HDEL', main, unpack(gone, i, math.min(i + 999, #gone)))
    end
    redis.call('HSET', main, 'used', 0)
    return capacity, 0, noted[3] or noted[4], used
  end
  local over = redis.call('ZRANGE', leases, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if #over > 0 then
    freed = give_back(main, leases, over, used, now)
  end
  return capacity, used - freed, noted[3] or noted[4], freed
end

-- Returns the ms until enough leases are over for n where so much is free; -1: not known. It looks at 64 of them. If it takes more, it is
-- the end of the 64th: a call then finds those given back, and learns of the next.
local function weight_ends(main, leases, n, free, now)
  local list = redis.call('ZRANGE', leases, 0, 63, 'WITHSCORES')
  for i = 1, #list, 2 do
    free = free + (weight_of(main, list[i]) or 0)
    if free >= n then
      return math.max(1, tonumber(list[i + 1]) - now)
    end
  end
  if #list == 128 then
    return math.max(1, tonumber(list[128]) - now)
  end
  return -1
end

-- Returns how weights are written, taken back and waited for, as serve has it.
local function weighing(main, leases, now)
  return function(base, n, till, label)
    weigh(main, leases, base, n, till, label)
    return n
  end, function(base, n) -- which was written just before
    redis.call('HDEL', main, base)
    redis.call('ZREM', leases, base)
    return n
  end, function(n, free)
    return weight_ends(main, leases, n, free, now)
  end
end

-- Wakes those that wait and are in no queue. The channel is that of a Semaphore of the name, whose waiters take an int.
local function wake_weights(q, channel, available)
  wake_for(q.publish, channel, math.min(available, 2147483647))
end

-- Writes what is used, and makes the keys last for at least ms.
local function note_weights(main, leases, capacity, used, ms)
  redis.call('HSET', main, 'capacity', digits(capacity), 'used', digits(used))
  for _, key in ipairs({main, leases}) do
    local left = redis.call('PTTL', key)
    if left ~= -2 and left < ms then
      redis.call('PEXPIRE', key, ms)
    end
  end
end
