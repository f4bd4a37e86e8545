-- Take all free permits of a counting semaphore, after those that wait have had theirs. A negative number of them is taken, too: the
-- count becomes 0.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- KEYS[4] queue  KEYS[5] given  KEYS[6] claimed (see lib/given.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] channels of grants, without the process
-- ARGV[4] the process  ARGV[5] ms between its polls
-- Reply {status, taken, ms after which to ask for the first in line (-1: another process does), lease and base of those of this process
--   that were given some}: 1 taken, the count is 0 now; 0 there is no key; 3 the key holds no integer, nothing done
-- Twice: the second run takes what has come since. It is sent once.
-- uses: clock, given, kind
local key, permits, record, given = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
refuse_all_but_counting(permits, record)
local value = redis.call('GET', key)
if not value then
  return {0, 0, -1}
end
if not integer(value) then
  return {3, 0, -1}
end
local q = line_of()
local back = reclaim(given, q.now)
local free = back > 0 and redis.call('INCRBY', key, digits(back)) or tonumber(value)
local left, own, look = hand_over(q, key, given, free, 0)
redis.call('SET', key, '0', 'KEEPTTL')
return and_own({1, left, look}, own)
