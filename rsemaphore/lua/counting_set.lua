-- Set the permits of a counting semaphore that has none, Redisson's trySetPermits, and hand them to those that wait.
-- KEYS[1] the count  KEYS[2] the permits of a Semaphore of that name  KEYS[3] the record of a latch (see lib/kind.lua)
-- KEYS[4] queue  KEYS[5] given  KEYS[6] claimed (see lib/given.lua)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] channels of grants, without the process
-- ARGV[4] the process  ARGV[5] ms between its polls
-- ARGV[6] how many  ARGV[7] TTL, ms (0: none)
-- Reply {status, ms after which to ask for the first in line (-1: another process does), lease and base of those of this process
--   that were given some}: 1 set; 0 the key is there, nothing done
-- Twice: the second run finds what the first has set, and replies 0. It is sent once.
-- uses: given, kind, wake
local key, permits, record, given = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local n, ttl = ARGV[6], ARGV[7]
refuse_all_but_counting(permits, record)
if redis.call('EXISTS', key) == 1 then
  return {0, -1}
end
if ttl == '0' then
  redis.call('SET', key, n)
else
  redis.call('SET', key, n, 'PX', ttl)
end
redis.call('DEL', given)
local q = line_of()
local left, own, look, tell = hand_over(q, key, given, tonumber(n), tonumber(n))
if tell then
  wake_for(q.publish, q.channel, left)
end
return and_own({1, look}, own)
