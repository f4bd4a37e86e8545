-- Set the capacity, whatever it was, and serve those that wait. A waiter for more than the capacity is notified, and asks.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue
-- ARGV[1] new capacity  ARGV[2] the caller's old one, if the semaphore is not in use  ARGV[3] ms to remember it unused
-- ARGV[4] not after, server ms (0: any time)  ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH  ARGV[7] id of this call
-- ARGV[8] channels of grants, without the process  ARGV[9] the process
-- Reply {status, capacity before, server ms, ms after which to ask for the first in line (-1: another process does), lease
--   and base of those of this process that were served}. status: 1 done; 2 too late, nothing done
-- Twice: a second run of the same call finds its id, does nothing and replies the same, unless there was another resize since.
--   Then the capacity is set again, not added to; what is out stays out.
-- uses: clock, queue, weights
local main, leases, capacity, declared, keep = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local notafter, channel, call = ARGV[4], ARGV[5], ARGV[7]
local now, us = clock()
local done, was = string.match(redis.call('HGET', main, 'before') or '', '^(%S+) (%d+)$')
if done == call then
  return {1, tonumber(was), now, -1}
end
if late(notafter, now) then
  return {2, 0, now, -1}
end
local q = {key = KEYS[3], publish = ARGV[6], grants = ARGV[8], conn = ARGV[9], now = now, us = us,
  most = math.huge}
local lined = redis.call('ZCARD', q.key) > 0 -- before anything is written
local before, used, _, freed = weighed(main, leases, now)
before = before or declared
redis.call('HSET', main, 'keep', digits(keep), 'before', call .. ' ' .. digits(before))
local available, own, look, head, longest = capacity - used, {}, -1, nil, 0
if lined then
  refresh_process(q)
  available, own, look, head, longest = serve(q, available, capacity, weighing(main, leases, now))
end
note_weights(main, leases, capacity, capacity - available, math.max(keep, longest + 1))
if not head and (capacity > before or freed > 0) then
  wake_weights(q, channel, available)
end
local reply = {1, before, now, look}
for _, word in ipairs(own) do
  reply[#reply + 1] = word
end
return reply
