-- Stand as a preferred candidate, or go on standing.
-- uses: clock
-- KEYS[1] the requests to the leader: a hash. That of a preferred candidate is id -> "<priority> <since> <until>", server ms
-- ARGV[1] the candidate's id  ARGV[2] its priority  ARGV[3] for how long this is believed, ms
-- Reply 1
-- Twice: the second run prolongs what the first wrote. One that comes after the candidate has left is believed for that long, and never
--   takes a leader's place: such a candidate has to have stood for longer than it is believed once (see requests).
local key, id = KEYS[1], ARGV[1]
local now = clock()
local since = now
local entry = redis.call('HGET', key, id)
if entry then
  local began, ends = string.match(entry, '^%d+ (%d+) (%d+)$')
  if began and not expired(ends, now) then
    since = began + 0
  end
end
redis.call('HSET', key, id, ARGV[2] .. ' ' .. digits(since) .. ' ' .. digits(now + ARGV[3]))
if redis.call('PTTL', key) < ARGV[3] + 0 then
  redis.call('PEXPIRE', key, ARGV[3])
end
return 1
