-- Distinguishes the kinds of objects whose key is a number under the name itself, as in Redisson. A semaphore has a set
-- of permits while any permit is held. A latch that this library set or counted down has "until" in its record until it
-- is over. If the key is of another kind, these functions end the script before anything is written.

local function refuse_semaphore(permits, kind)
  if redis.call('EXISTS', permits) == 1 then
    error('WRONGTYPE the key is a Semaphore, not a ' .. kind, 0)
  end
end

local function refuse_latch(record, kind)
  if redis.call('HEXISTS', record, 'until') == 1 then
    error('WRONGTYPE the key is a CountDownLatch, not a ' .. kind, 0)
  end
end

local function refuse_all_but_counting(permits, record)
  refuse_semaphore(permits, 'CountingSemaphore')
  refuse_latch(record, 'CountingSemaphore')
end

-- ends_at: the "until" of the latch's record. Only latches of this library have an expiry, and these have a record.
local function refuse_all_but_latch(key, permits, exists, ends_at)
  refuse_semaphore(permits, 'CountDownLatch')
  if exists and not ends_at and redis.call('PTTL', key) >= 0 then
    error('WRONGTYPE the key is not a CountDownLatch: it has an end, as a Semaphore has, and no record', 0)
  end
end
