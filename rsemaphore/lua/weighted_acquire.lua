-- Take weights for several waiters of one process, for each all or nothing; and serve those that wait.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue
-- ARGV as of acquire.lua; ARGV[5] is not used, because nothing here is Redisson's
-- Reply as of acquire.lua
-- Twice: what is out already is not taken again, its lease is only ever raised, and its weight stays as it is: a part of it may have
--   been released since. An entry keeps its ticket. What a run served for others of the process is found by those when they ask.
-- uses: clock, integer, queue, revision, weights
local main, leases = KEYS[1], KEYS[2]
local wanted, revision = string.match(ARGV[1], '^(%d+):?(%d*)$')
local capacity, notafter, channel, place = tonumber(wanted), ARGV[2], ARGV[3], ARGV[8] == '1'
local now, us = clock()
if late(notafter, now) then
  return {2, now, 0, -1, -1, 0}
end
-- As in acquire: the first call of a client tries the commands of the release. ZADD, which adds nothing, is refused where memory is full.
if notafter == '0' then
  redis.call('ZADD', leases, 'XX', 0, '')
  redis.call('ZREM', leases, '')
  redis.call('HDEL', main, '')
  redis.call('EXISTS', leases)
  redis.call('ZSCORE', leases, '')
  redis.call('ZRANGE', leases, 0, 0)
end
local q = {key = KEYS[3], publish = ARGV[4], grants = ARGV[6], conn = ARGV[7], now = now, us = us,
  most = math.huge}
local lined = redis.call('ZCARD', q.key) > 0 -- before anything is written
local known, used, resized, freed = weighed(main, leases, now)
if revision ~= '' then
  local newer, other = revise(main, 'revised', capacity, tonumber(revision))
  if other then
    return {3, now, other, -1, -1, 0}
  end
  if newer then
    redis.call('HSET', main, 'keep', digits(REVISION_KEPT))
    freed = freed + math.max(1, capacity - (known or 0)) -- so that it is written, and waiters are notified
    known = capacity
  end
  resized = true
end
local total = known or capacity
if total ~= capacity and not resized then
  return {3, now, total, -1, -1, 0}
end
local available, longest = total - used, 0
local own, look, head, most = {}, -1, nil, 0
if lined and not place then -- a request without a place passes no waiter that can be served
  available, own, look, head, longest = serve(q, available, total, weighing(main, leases, now))
end
local spare = available - (lined and reserved(q) or 0)
local blocked = lined and lined_up(q)
local reply, left, refused = {1, now, total, -1, -1, 0}, -1, false
for i = 9, #ARGV, 2 do
  local entry, lease = ARGV[i], tonumber(ARGV[i + 1])
  local base, n, _, _, _, label = read_entry(entry)
  local out, noted = weight_of(main, base)
  if out then
    weigh(main, leases, base, out, now + lease, noted)
    reply[#reply + 1] = -1
    longest = math.max(longest, lease)
  elseif n > total then
    reply[#reply + 1] = -2
  elseif not blocked and n <= spare then
    weigh(main, leases, base, n, now + lease, label)
    available, spare = available - n, spare - n
    reply[#reply + 1] = -1
    longest = math.max(longest, lease)
  else
    if not refused then
      left = weight_ends(main, leases, n, math.min(available, n - 1), now)
    end
    refused, blocked = true, true
    reply[#reply + 1] = place and enter(q, entry) or 0
  end
end
if place and (lined or refused) and lined_up(q) then
  redis.call('ZADD', q.key, -now, '!' .. q.conn)
  available, own, look, head, most = serve(q, available, total, weighing(main, leases, now))
  longest = math.max(longest, most)
end
if longest > 0 or freed > 0 then
  note_weights(main, leases, total, total - available, math.max(longest + 1, whole(redis.call('HGET', main, 'keep'), 'time of a semaphore') or 0))
end
if freed > 0 and not head then
  wake_weights(q, channel, available)
end
reply[4], reply[5] = left, look
for _, word in ipairs(own) do
  reply[#reply + 1] = word
end
return reply
