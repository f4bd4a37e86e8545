-- The common case of acquire and release, for one permit each of many semaphores of one server in one call. In any other case a request
-- has to be sent alone, and nothing has been done for it. A key that cannot be read (another type, no right) is another case, too: the
-- single call returns the error.
-- KEYS of each semaphore, five: count, permits, notes, the record of a latch of that name, queue
-- ARGV[1] PUBLISH or SPUBLISH, then for each permit: its semaphore, from 0; base of 13 bytes, and its label; lease in ms or '' to release;
--   not after in server ms (0: any time) or the channel of a release; the capacity, then a colon and its revision if it has one, and a star
--   before it if that of the server counts (shared with Redisson)
-- Reply {server ms, and for each 1 done, 0 to be sent alone}
-- Twice: the second run replies 0 for a permit that is held already, or released already. The single call is a script that may run twice.
-- uses: clock, integer, send
local now = clock()
local out, known, texts, described = {now}, {}, {}, {}
local function number_text(n) -- most permits of a call have the same lease
  local key = n + 0.5 -- a fraction, so that the Lua of a test's server makes no array of that size
  if not texts[key] then
    texts[key] = string.format('%.0f', n)
  end
  return texts[key]
end
local function describe(capacity)
  local star, wanted, revision = string.match(capacity, '^(%*?)(%d+):?(%d*)$')
  return {shared = star ~= '', wanted = wanted, revision = revision ~= '' and revision or nil}
end

-- Reports whether the capacity is the caller's, or the server's counts, as in acquire.lua.
local function fits(s, d)
  if s.revised == nil then -- no notes
    return not d.revision and (d.shared or s.available + s.out == tonumber(d.wanted))
  end
  local known, of = string.match(s.revised or '', '^(%d+) (%d+)$')
  if d.revision and not (known and (known == d.revision and of == d.wanted or tonumber(d.revision) < tonumber(known))) then
    return false
  end
  if s.resized then
    return s.left == -1 or s.available + s.out == s.resized
  end
  return not d.revision and (d.shared or s.available + s.out == tonumber(d.wanted))
end
for a = 2, #ARGV, 5 do
  local at, id, label, lease, last, capacity = tonumber(ARGV[a]) * 5, string.sub(ARGV[a + 1], 1, 13) .. '\0\0\0', string.sub(ARGV[a + 1], 14), ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local count, permits, notes, latch, queue = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], KEYS[at + 5]
  local s, done = known[at], 0
  if not s then -- each semaphore is read once, because nothing else runs meanwhile
    s = {}
    known[at] = s
    if lease ~= '' then
      local existing = redis.pcall('EXISTS', permits, permits, permits, permits, permits, permits, notes, notes, notes, latch, queue)
      s.plain = type(existing) == 'number' and existing % 3 == 0
      if s.plain then
        s.noted = existing % 2 == 1
        s.out = existing < 6 and 0 or nil
      end
    else
      local existing = redis.pcall('EXISTS', count, count, count, count, count, count, notes, notes, notes, latch, queue)
      s.plain = existing == 6 or existing == 9
      s.counted, s.noted = s.plain, existing == 9
    end
    if s.plain and s.out ~= 0 then
      local over = redis.pcall('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1)
      s.plain = not over.err and not over[1]
    end
  end
  if s.plain and lease ~= '' and not s.left then
    local number = redis.pcall('GET', count)
    s.left, s.available, s.out = redis.pcall('PTTL', count), type(number) == 'string' and is_integer(number) and tonumber(number), s.out or redis.pcall('ZCARD', permits)
    s.ours = s.out == 0 and -2 or redis.pcall('PTTL', permits)
    s.plain = s.available and type(s.left) == 'number' and type(s.out) == 'number' and type(s.ours) == 'number'
    if s.plain and s.noted then
      local noted, last, least = redis.pcall('HMGET', notes, 'keep', 'capacity', 'revised'), redis.pcall('PTTL', notes), nil
      if not noted.err and type(last) == 'number' and is_integer(noted[1] or '0') and is_integer(noted[2] or '0') and #(noted[2] or '') < 11 then
        least = tonumber(noted[1] or '0') - 60000
        s.last = last
        s.resized = tonumber(noted[2] or '')
        s.revised = noted[3]
      end
      s.plain = least and last >= least and (s.left == -1 or s.left >= least)
    end
    s.counted = s.plain
  end
  if s.plain and lease ~= '' then
    local ms, d = tonumber(lease), described[capacity] or describe(capacity)
    described[capacity] = d
    -- Either both keys have an end, or none has: see extend_keys.
    if not late(last, now) and s.available > 0 and fits(s, d) and
        (s.left == -1 and s.ours < 0 or not d.shared and s.left >= 0 and s.ours ~= -1) and
        redis.pcall('ZADD', permits, 'NX', number_text(now + ms), id) == 1 then
      local need, fine = math.max(s.left, ms + 1), nil
      if s.left >= 0 and s.left < need then
        fine = not redis.pcall('SET', count, number_text(s.available - 1), 'PX', number_text(need)).err
        s.left = fine and need or s.left
      else
        fine = redis.pcall('INCRBY', count, '-1') == s.available - 1
      end
      if fine and s.left >= 0 and s.ours < need then
        fine, s.ours = redis.pcall('PEXPIRE', permits, number_text(need)) == 1, need
        if not fine then
          redis.pcall('INCRBY', count, '1')
        end
      end
      if fine then
        done, s.available, s.out = 1, s.available - 1, s.out + 1
        if label ~= '' then
          redis.pcall('HSET', notes, id, label)
          s.noted, s.revised, s.last = true, s.revised or false, s.last or -1
        end
        if (s.last or math.huge) <= ms then
          redis.pcall('PEXPIRE', notes, number_text(ms + 1))
          s.last = ms + 1
        end
      else -- no right, or not a number
        redis.pcall('ZREM', permits, id)
        s.plain = false
      end
    end
  elseif s.plain and s.counted then
    -- The count comes first: if it is refused, nothing of the release has been done.
    local available = redis.pcall('INCRBY', count, '1')
    if type(available) ~= 'number' then
      s.plain = false
    elseif redis.pcall('ZREM', permits, id) == 1 then
      done, s.channel, s.available = 1, last, available
      if s.noted then
        redis.pcall('HDEL', notes, id)
      end
      s.out = s.out and s.out - 1
      if s.out == 0 then
        s.ours = -2
      end
    else
      redis.pcall('INCRBY', count, '-1')
    end
  end
  out[#out + 1] = done
end
if ARGV[1] ~= '' then
  for _, s in pairs(known) do
    if s.channel and s.available > 0 then
      send(ARGV[1], s.channel, number_text(s.available))
    end
  end
end
return out
