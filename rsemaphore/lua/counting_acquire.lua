-- Take permits of a counting semaphore, Redisson's RSemaphore, for several waiters of one process, for each all or none; claim what
-- they were given; and serve those that wait.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- KEYS[4] queue  KEYS[5] given  KEYS[6] claimed (see lib/given.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] channels of grants, without the process
-- ARGV[4] the process  ARGV[5] ms between its polls
-- ARGV[6] not after, server ms (0: any time)  ARGV[7] 1: whoever cannot be served gets a place in the queue
-- ARGV[8] for how many ms this call may be made again for these waiters; 0: it is sent once, and is the first for them
-- ARGV[9…] entry of each
-- Reply {status, server ms, ms after which to ask for the first in line (-1: another process does, or nobody knows), for each: -1
--   granted, 0 not served, or the ticket of its place; then lease and base of others of this process that were given some}
--   status: 1 done; 2 too late, and 3 the key holds no integer: nothing done, and nothing is said of each
-- Twice: who was granted is marked, and is granted again without taking twice. With ARGV[8] 0 it takes twice: that is sent once.
-- uses: clock, given, kind, queue, wake
local key, permits, record, given, claimed = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
local notafter, place, kept = ARGV[6], ARGV[7] == '1', tonumber(ARGV[8])
refuse_all_but_counting(permits, record)
local q = line_of()
local now = q.now
if late(notafter, now) then
  return {2, now, -1}
end
local value = redis.call('GET', key)
if value and not integer(value) then
  return {3, now, -1}
end
local before = tonumber(value or 0)
local free, back = before, 0
if value then
  back = reclaim(given, now)
  free = free + back
else
  redis.call('DEL', given)
end
local lend, take, ends = giving(key, given, now)
local lined, own, look, head = redis.call('EXISTS', q.key) == 1, {}, -1, nil
if lined and not place then -- who asks without a place goes past nobody that can be served
  free, own, look, head = serve(q, free, math.huge, lend, take, ends)
end
local spare = free - (lined and reserved(q) or 0)
local blocked = lined and lined_up(q)
local reply, asked, refused = {1, now, -1}, {}, false
local function grant(base)
  if kept > 0 then
    mark(claimed, base, now, kept)
  end
end
for i = 9, #ARGV do
  local base, n = read_entry(ARGV[i])
  if kept > 0 and claim(given, claimed, base, n, now, kept) then
    reply[#reply + 1] = -1
  elseif not blocked and n <= spare then
    free, spare = free - n, spare - n
    grant(base)
    reply[#reply + 1] = -1
  else
    refused, blocked = true, true
    reply[#reply + 1] = place and enter(q, ARGV[i]) or 0
    asked[base] = #reply
  end
end
local words = own
if place and (lined or refused) and lined_up(q) then
  waits(q)
  free, words, look, head = serve(q, free, math.huge, function(base, n, till)
    if asked[base] then -- this very reply says so
      grant(base)
      reply[asked[base]] = -1
    else
      lend(base, n, till)
    end
  end, take, ends)
end
own = {}
for i = 1, #words, 2 do
  if not (asked[words[i + 1]] and reply[asked[words[i + 1]]] == -1) then
    own[#own + 1], own[#own + 2] = words[i], words[i + 1]
  end
end
if free ~= before then
  redis.call('INCRBY', key, digits(free - before))
end
if back > 0 and not head then
  wake_for(q.publish, q.channel, free)
end
reply[3] = look
return and_own(reply, own)
