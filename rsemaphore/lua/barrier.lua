-- The verbs of a party at a barrier, except the renewal of its lease: arrive, look, trip, leave. Any client may read
-- the state. They are one script because each must first check whether a party's lease has ended.
--
-- KEYS[1] a hash:
--   id, gen, parties   of this life of the key: its id, the generation that gathers, and the number of parties
--   n, act             the number of arrivals; the last arriver, while it acts
--   lease, soon        the longest lease of a party, ms; an instant before which no lease ends
--   m:<party>          an arrival in gen -> end of its lease, with "?" until the party has shown that it knows of its arrival
--   r:<party>          -> "<ends at> <generation>": the party arrived in that generation, which is over, and may not know of
--                      its arrival
--   b:<generation>     -> end: that generation broke. A generation that is over without this mark has tripped
-- ARGV[1] verb  ARGV[2] party  ARGV[3] id, '' if not known  ARGV[4] generation  ARGV[5] parties  ARGV[6] lease, ms
-- ARGV[7] not after, server ms (0: any time)  ARGV[8] how long an idle barrier is kept, ms  ARGV[9] channel
-- ARGV[10] PUBLISH or SPUBLISH  ARGV[11] 1: a request of this party to arrive may still come
-- The end of a generation is published as "<id> <generation> tripped", or broken. A generation ends once, and no id is
-- used again, so the message replaces a look.
-- Reply {status, id, generation, arrived, ms, server ms, parties}. status:
--   0  waiting; ms until a lease may end
--   1  arrived last, acts now
--   2  too late; nothing is done
--   3  full, the last arriver acts
--   4  waits for another number of parties
--   5  the generation tripped
--   6  the generation broke
--   7  the party or the barrier is not known
-- Twice: an arrival is known by its party, during its generation (m:) and, if its reply may have been lost, after it
--   (r:). A generation that is over stays as it ended, so a second trip or leave does nothing. Marks are kept for one
--   lease: a party that has not renewed for a lease gives up by its own clock, and sends no more requests.
--   The marks of a party stay as long as a request of the party to arrive may come (ARGV[11]). Its last leave removes
--   them:
--     arrive, no reply; arrive again, as the last; trip      B, C of three parties arrive in the next generation
--     the first arrive comes: without its r: it would be the third arrival there, and B and C would continue
--     (TestArrival_PartyGone_DoesNotCount)
-- uses: clock, integer, send
local key, verb, party, id, gen = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local parties, lease, notafter, idle = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local channel, publish, pending = ARGV[9], ARGV[10], ARGV[11] == '1'
local now = clock()
if late(notafter, now) then
  return {2, '', 0, 0, 0, now, 0}
end
local state = redis.call('HMGET', key, 'id', 'gen', 'parties', 'n', 'act', 'lease', 'soon')
local barrier_id, barrier_gen = state[1] or '', require_integer(state[2], 'generation of a barrier') or 0
local barrier_parties, arrived, acting = tonumber(state[3]) or 0, tonumber(state[4]) or 0, state[5]
local longest, soon = tonumber(state[6]) or 0, tonumber(state[7]) or 0

local function reply(status)
  return {status, barrier_id, barrier_gen, arrived, math.max(0, soon - now), now, barrier_parties}
end

-- end_generation ends the generation, which broke if broke is set, and tripped otherwise. The first two writes are
-- harmless alone: the expiry, and the removal of soon, after which the next call reads all leases. A user without the
-- right is refused there, before the generation has half ended. A server without memory refuses neither of the two, nor
-- the writes that follow them in the script.
local function end_generation(broke)
  local ends_at = digits(now + longest)
  local fields = redis.call('HGETALL', key)
  local new_fields, old_fields = {'gen', digits(barrier_gen + 1)}, {'n', 'act', 'lease'}
  if broke then
    new_fields[3], new_fields[4] = 'b:' .. digits(barrier_gen), ends_at
  end
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local kind = string.sub(field, 1, 2)
    if kind == 'm:' then
      old_fields[#old_fields + 1] = field
      if string.sub(value, -1) == '?' then
        new_fields[#new_fields + 1] = 'r:' .. string.sub(field, 3)
        new_fields[#new_fields + 1] = ends_at .. ' ' .. digits(barrier_gen)
      end
    elseif (kind == 'r:' or kind == 'b:') and expired(string.match(value, '^%d+'), now) then
      old_fields[#old_fields + 1] = field
    end
  end
  redis.call('PEXPIRE', key, idle + longest)
  redis.call('HDEL', key, 'soon')
  for i = 1, #new_fields, 1000 do
    redis.call('HSET', key, unpack(new_fields, i, math.min(i + 999, #new_fields)))
  end
  for i = 1, #old_fields, 1000 do
    redis.call('HDEL', key, unpack(old_fields, i, math.min(i + 999, #old_fields)))
  end
  send(publish, channel, barrier_id .. ' ' .. digits(barrier_gen) .. (broke and ' broken' or ' tripped'))
  barrier_gen, arrived, acting, longest, soon = barrier_gen + 1, 0, nil, 0, 0
end

-- reply_ended replies how a generation that is over ended.
local function reply_ended()
  if not pending then
    redis.call('HDEL', key, 'r:' .. party)
  end
  barrier_gen = gen
  return reply(redis.call('HEXISTS', key, 'b:' .. digits(gen)) == 1 and 6 or 5)
end

if arrived > 0 and (expired(soon, now) or soon > now + longest) then
  -- soon is only a lower bound, because renewals do not move it. So all leases are read, and a better bound is found.
  -- No lease ends later than the longest lease from now, unless the server's clock was set back. Then the lease of a
  -- dead party would keep the other parties waiting until the clock has caught up. So it is cut to the longest possible
  -- lease. A living party relies on less: on its lease from before its last renewal was sent.
  local fields = redis.call('HGETALL', key)
  local first = now + longest
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'm:' then
      local ends, mark = string.match(fields[i + 1], '^(%d+)(%??)')
      ends = tonumber(ends)
      if ends > now + longest then
        ends = now + longest
        redis.pcall('HSET', key, fields[i], digits(ends) .. mark)
      end
      first = math.min(first, ends)
    end
  end
  soon = first
  if expired(first, now) then
    end_generation(true)
  else
    redis.pcall('HSET', key, 'soon', digits(soon))
  end
end

if verb == 'state' then
  return reply(acting and 1 or 0)
end

if verb == 'arrive' then
  if redis.call('HEXISTS', key, 'm:' .. party) == 1 then
    return reply(acting == party and 1 or 0)
  end
  local past_arrival = redis.call('HGET', key, 'r:' .. party)
  if past_arrival then
    barrier_gen = tonumber(string.match(past_arrival, ' (%d+)$'))
    return reply(0)
  end
  if arrived > 0 and parties ~= barrier_parties then
    return reply(4)
  end
  if acting then
    return reply(3)
  end
  local ends_at = now + lease
  local is_new = barrier_id == ''
  if arrived == 0 then
    if is_new then -- a new life: no party's id is ever used again
      barrier_id, barrier_gen = party, 1
    end
    soon, barrier_parties = ends_at, parties
  end
  arrived, longest, soon = arrived + 1, math.max(longest, lease), math.min(soon, ends_at)
  if not is_new then -- before the party is written: a user without the right must not leave a party behind
    redis.call('PEXPIRE', key, idle + longest)
  end
  redis.call('HSET', key, 'id', barrier_id, 'gen', digits(barrier_gen), 'parties', digits(parties), 'n', digits(arrived), 'lease', digits(longest),
    'soon', digits(soon), 'm:' .. party, digits(ends_at) .. '?')
  if is_new then
    local ends = redis.pcall('PEXPIRE', key, idle + longest)
    if type(ends) == 'table' then
      redis.call('DEL', key)
      return ends
    end
  end
  if arrived == parties then
    acting = party
    redis.call('HSET', key, 'act', party)
  end
  return reply(acting and 1 or 0)
end

if verb == 'leave' and id == '' then -- the party does not know whether it arrived
  if redis.call('HEXISTS', key, 'm:' .. party) == 1 then
    end_generation(true)
    return reply(6)
  end
  if not pending then
    redis.call('HDEL', key, 'r:' .. party)
  end
  return reply(7)
end

if barrier_id ~= id or gen > barrier_gen then
  return reply(7)
end
if gen < barrier_gen then
  return reply_ended()
end
local mark = redis.call('HGET', key, 'm:' .. party)
if not mark then
  return reply(7)
end
if verb == 'trip' then
  if acting ~= party then
    return reply(7)
  end
  end_generation(false)
  return reply_ended()
end
if verb == 'leave' then
  end_generation(true)
  return reply_ended()
end
if string.sub(mark, -1) == '?' and not pending then
  redis.pcall('HSET', key, 'm:' .. party, string.sub(mark, 1, -2))
end
return reply(0)
