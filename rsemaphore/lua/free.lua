-- The common case of acquire and release, for one permit each of many semaphores of one server in one call. Whoever meets anything
-- else is to ask alone: nothing has been done for it. What cannot be looked at (of another type, no right) is left alone, too, and the
-- lone call says what is wrong.
-- KEYS of each semaphore, five: count, permits, notes, the record of a latch of that name, queue
-- ARGV[1] PUBLISH or SPUBLISH, then for each permit: its semaphore, from 0; base of 13 bytes; lease in ms or '' to release; not after in
--   server ms (0: any time) or the channel of a release; the capacity, or '' if that of the server counts (shared with Redisson)
-- Reply {server ms, and for each 1 done, 0 ask alone}
-- Twice: a permit that is out, or is out no more, is told to ask alone, and learns that from a script that may run twice.
-- uses: clock
local pcall, now = redis.pcall, clock()
local out, known, texts = {now}, {}, {}
local function text(n) -- most permits of a call have the same lease
  if not texts[n] then
    texts[n] = string.format('%.0f', n)
  end
  return texts[n]
end
for a = 2, #ARGV, 5 do
  local at, id, lease, last, capacity = tonumber(ARGV[a]) * 5, ARGV[a + 1] .. '\0\0\0', ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local count, permits, notes, latch, queue = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], KEYS[at + 5]
  local s, done = known[at], 0
  if not s then -- each semaphore is looked at once: nothing runs beside
    s = {}
    known[at] = s
    if lease ~= '' then
      local there = pcall('EXISTS', permits, permits, permits, permits, notes, latch, queue)
      s.plain, s.out = there == 0 or there == 4, there == 0 and 0 or nil
    else
      s.plain = pcall('EXISTS', count, count, count, count, notes, latch, queue) == 4
      s.counted = s.plain
    end
    if s.plain and s.out ~= 0 then
      local over = pcall('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1)
      s.plain = not over.err and not over[1]
    end
  end
  if s.plain and lease ~= '' and not s.left then
    s.left, s.available, s.out = pcall('PTTL', count), tonumber(pcall('GET', count)), s.out or pcall('ZCARD', permits)
    s.ours = s.out == 0 and -2 or pcall('PTTL', permits)
    s.plain = s.available and type(s.left) == 'number' and type(s.out) == 'number' and type(s.ours) == 'number'
    s.counted = s.plain
  end
  if s.plain and lease ~= '' then
    local ms, shared = tonumber(lease), capacity == ''
    -- Either both keys have an end, or none has: see prolong.
    if not late(last, now) and s.available > 0 and (shared or s.available + s.out == tonumber(capacity)) and
        (s.left == -1 and s.ours < 0 or not shared and s.left >= 0 and s.ours ~= -1) and
        pcall('ZADD', permits, 'NX', text(now + ms), id) == 1 then
      local need, fine = math.max(s.left, ms + 1), nil
      if s.left >= 0 and s.left < need then
        fine = not pcall('SET', count, text(s.available - 1), 'PX', text(need)).err
        s.left = fine and need or s.left
      else
        fine = pcall('INCRBY', count, '-1') == s.available - 1
      end
      if fine and s.left >= 0 and s.ours < need then
        fine, s.ours = pcall('PEXPIRE', permits, text(need)) == 1, need
        if not fine then
          pcall('INCRBY', count, '1')
        end
      end
      if fine then
        done, s.available, s.out = 1, s.available - 1, s.out + 1
      else -- no right to it, or no number
        pcall('ZREM', permits, id)
        s.plain = false
      end
    end
  elseif s.plain and s.counted then
    -- The count comes first: of a release that is refused there, nothing has been done.
    local available = pcall('INCRBY', count, '1')
    if type(available) ~= 'number' then
      s.plain = false
    elseif pcall('ZREM', permits, id) == 1 then
      done, s.channel, s.available = 1, last, available
      s.out = s.out and s.out - 1
      if s.out == 0 then
        s.ours = -2
      end
    else
      pcall('INCRBY', count, '-1')
    end
  end
  out[#out + 1] = done
end
if ARGV[1] ~= '' then
  for _, s in pairs(known) do
    if s.channel and s.available > 0 then
      pcall(ARGV[1], s.channel, text(s.available))
    end
  end
end
return out
