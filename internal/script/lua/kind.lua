-- Tells the kinds apart whose key is a number under the name itself, as Redisson has it. A semaphore has a set of permits while
-- any permit is out. A latch that was set or counted down here has "until" in its record until it is over. If the key is of
-- another kind, these functions end the script before anything is written.

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

-- A latch that has an end was set here, and has ends_at, the "until" of its record.
local function refuse_all_but_latch(key, permits, exists, ends_at)
  refuse_semaphore(permits, 'CountDownLatch')
  if exists and not ends_at and redis.call('PTTL', key) >= 0 then
    error('WRONGTYPE the key is not a CountDownLatch: it has an end, as a Semaphore has, and no record', 0)
  end
end
