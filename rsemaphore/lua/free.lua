-- The common case of acquire and release, for one permit each of many semaphores of one server in one call. In any
-- other case the script does nothing for the request, and the caller sends a lone call. It does nothing either for keys
-- that it cannot read (another type, no right): the lone call then returns the error.
-- KEYS of each semaphore, five: count, permits, notes, the record of a latch of that name, queue
-- ARGV[1] PUBLISH or SPUBLISH, then for each permit: its semaphore, from 0; base of 13 bytes, and its label; lease in
--   ms or '' to release; not after in server ms (0: any time) or the channel of a release; the capacity, then a colon
--   and its revision if it has one, and a star before it if the server's capacity counts (shared with Redisson)
-- Reply {server ms, and for each request 1 done, 0 send a lone call}
-- Twice: the second run replies 0 for a permit that is held already, or released already. The lone call is a script
--   that may run twice.
-- uses: clock, integer, send
local now = clock()
local outcomes, semaphores, number_texts, terms_of = {now}, {}, {}, {}
local function number_text(n) -- most permits of a call have the same lease
  local key = n + 0.5 -- a fraction, so that the Lua of a test's server makes no array of that size
  if not number_texts[key] then
    number_texts[key] = string.format('%.0f', n)
  end
  return number_texts[key]
end
local function read_terms(capacity)
  local star, wanted, revision = string.match(capacity, '^(%*?)(%d+):?(%d*)$')
  return {shared = star ~= '', wanted = wanted, revision = revision ~= '' and revision or nil}
end

-- Reports whether the capacity is the caller's, or the server's capacity counts, as in acquire.lua.
local function fits(sem, terms)
  if sem.revised == nil then -- no notes
    return not terms.revision and (terms.shared or sem.available + sem.held_count == tonumber(terms.wanted))
  end
  local known_revision, known_capacity = string.match(sem.revised or '', '^(%d+) (%d+)$')
  if terms.revision and not (known_revision and (known_revision == terms.revision and known_capacity == terms.wanted or tonumber(terms.revision) < tonumber(known_revision))) then
    return false
  end
  if sem.resized then
    return sem.count_left == -1 or sem.available + sem.held_count == sem.resized
  end
  return not terms.revision and (terms.shared or sem.available + sem.held_count == tonumber(terms.wanted))
end
for a = 2, #ARGV, 5 do
  local first_key, id, label, lease, last, capacity = tonumber(ARGV[a]) * 5, string.sub(ARGV[a + 1], 1, 13) .. '\0\0\0', string.sub(ARGV[a + 1], 14), ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local count, permits, notes, latch, queue = KEYS[first_key + 1], KEYS[first_key + 2], KEYS[first_key + 3], KEYS[first_key + 4], KEYS[first_key + 5]
  local sem, done = semaphores[first_key], 0
  if not sem then -- each semaphore is read once, because nothing else runs meanwhile
    sem = {}
    semaphores[first_key] = sem
    if lease ~= '' then
      local existing = redis.pcall('EXISTS', permits, permits, permits, permits, permits, permits, notes, notes, notes, latch, queue)
      sem.is_simple = type(existing) == 'number' and existing % 3 == 0
      if sem.is_simple then
        sem.has_notes = existing % 2 == 1
        sem.held_count = existing < 6 and 0 or nil
      end
    else
      local existing = redis.pcall('EXISTS', count, count, count, count, count, count, notes, notes, notes, latch, queue)
      sem.is_simple = existing == 6 or existing == 9
      sem.has_count, sem.has_notes = sem.is_simple, existing == 9
    end
    if sem.is_simple and sem.held_count ~= 0 then
      local expired_ids = redis.pcall('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1)
      sem.is_simple = not expired_ids.err and not expired_ids[1]
    end
  end
  if sem.is_simple and lease ~= '' and not sem.count_left then
    local number = redis.pcall('GET', count)
    sem.count_left, sem.available, sem.held_count = redis.pcall('PTTL', count), type(number) == 'string' and is_integer(number) and tonumber(number), sem.held_count or redis.pcall('ZCARD', permits)
    sem.permits_left = sem.held_count == 0 and -2 or redis.pcall('PTTL', permits)
    sem.is_simple = sem.available and type(sem.count_left) == 'number' and type(sem.held_count) == 'number' and type(sem.permits_left) == 'number'
    if sem.is_simple and sem.has_notes then
      local noted, last, least = redis.pcall('HMGET', notes, 'keep', 'capacity', 'revised'), redis.pcall('PTTL', notes), nil
      if not noted.err and type(last) == 'number' and is_integer(noted[1] or '0') and is_integer(noted[2] or '0') and #(noted[2] or '') < 11 then
        least = tonumber(noted[1] or '0') - 60000
        sem.notes_left = last
        sem.resized = tonumber(noted[2] or '')
        sem.revised = noted[3]
      end
      sem.is_simple = least and last >= least and (sem.count_left == -1 or sem.count_left >= least)
    end
    sem.has_count = sem.is_simple
  end
  if sem.is_simple and lease ~= '' then
    local ms, terms = tonumber(lease), terms_of[capacity] or read_terms(capacity)
    terms_of[capacity] = terms
    -- Either both keys have an end, or none has: see extend_keys.
    if not late(last, now) and sem.available > 0 and fits(sem, terms) and
        (sem.count_left == -1 and sem.permits_left < 0 or not terms.shared and sem.count_left >= 0 and sem.permits_left ~= -1) and
        redis.pcall('ZADD', permits, 'NX', number_text(now + ms), id) == 1 then
      local need, is_counted = math.max(sem.count_left, ms + 1), nil
      if sem.count_left >= 0 and sem.count_left < need then
        is_counted = not redis.pcall('SET', count, number_text(sem.available - 1), 'PX', number_text(need)).err
        sem.count_left = is_counted and need or sem.count_left
      else
        is_counted = redis.pcall('INCRBY', count, '-1') == sem.available - 1
      end
      if is_counted and sem.count_left >= 0 and sem.permits_left < need then
        is_counted, sem.permits_left = redis.pcall('PEXPIRE', permits, number_text(need)) == 1, need
        if not is_counted then
          redis.pcall('INCRBY', count, '1')
        end
      end
      if is_counted then
        done, sem.available, sem.held_count = 1, sem.available - 1, sem.held_count + 1
        if label ~= '' then
          redis.pcall('HSET', notes, id, label)
          sem.has_notes, sem.revised, sem.notes_left = true, sem.revised or false, sem.notes_left or -1
        end
        if (sem.notes_left or math.huge) <= ms then
          redis.pcall('PEXPIRE', notes, number_text(ms + 1))
          sem.notes_left = ms + 1
        end
      else -- the user has no right, or the count is not a number
        redis.pcall('ZREM', permits, id)
        sem.is_simple = false
      end
    end
  elseif sem.is_simple and sem.has_count then
    -- The count comes first: if it is refused, nothing of the release has been done.
    local available = redis.pcall('INCRBY', count, '1')
    if type(available) ~= 'number' then
      sem.is_simple = false
    elseif redis.pcall('ZREM', permits, id) == 1 then
      done, sem.channel, sem.available = 1, last, available
      if sem.has_notes then
        redis.pcall('HDEL', notes, id)
      end
      sem.held_count = sem.held_count and sem.held_count - 1
      if sem.held_count == 0 then
        sem.permits_left = -2
      end
    else
      redis.pcall('INCRBY', count, '-1')
    end
  end
  outcomes[#outcomes + 1] = done
end
if ARGV[1] ~= '' then
  for _, sem in pairs(semaphores) do
    if sem.channel and sem.available > 0 then
      send(ARGV[1], sem.channel, number_text(sem.available))
    end
  end
end
return outcomes
