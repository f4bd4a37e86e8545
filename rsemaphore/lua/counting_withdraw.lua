-- Take a waiter that has given up out of a counting semaphore: its place, what it was given, and what it took without hearing of it.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- KEYS[4] queue  KEYS[5] given  KEYS[6] claimed (see lib/given.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] channels of grants, without the process
-- ARGV[4] the process  ARGV[5] ms between its polls
-- ARGV[6] entry
-- Reply {how many permits went back, ms after which to ask for the first in line (-1: another process does), lease and base of those of
--   this process that were given some}
-- Twice: the second run finds nothing. It takes out what a request has entered that ran in between.
-- uses: clock, given, kind, queue, wake
local key, permits, record, given, claimed = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
refuse_all_but_counting(permits, record)
local q = line_of()
local base, n = read_entry(ARGV[6])
redis.call('ZREM', q.key, ARGV[6], '!p' .. base)
local mine, back = redis.call('ZREM', given, base .. ' ' .. digits(n)) + redis.call('ZREM', claimed, base), 0
if redis.call('EXISTS', key) == 0 then
  redis.call('DEL', given)
  if not lined_up(q) then
    redis.call('DEL', q.key) -- stamps of nobody
  end
  return {0, -1}
end
if mine > 0 then
  back = n
end
local freed = back + reclaim(given, q.now)
local free = redis.call('INCRBY', key, digits(freed))
local left, own, look, tell = hand_over(q, key, given, free, freed)
if tell and freed > 0 then
  wake_for(q.publish, q.channel, left)
end
return and_own({back, look}, own)
