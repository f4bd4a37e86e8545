-- Read whether an owner holds a lock of any kind, and which calls wait for the lock while they hold others: see
-- deadlock.go.
-- uses: clock
-- KEYS[1] the lock  KEYS[2] the calls, as of blocked.lua
-- ARGV[1] owner
-- Reply {server ms, 1 if the owner holds the lock, {record, server ms of its last request, …}}: at most 1,000 records,
--   the latest first
-- Twice: reads only.
local held = redis.pcall('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':write')
local is_held
if held.err then -- a plain mutex is a string; the error of another type goes to the caller
  is_held = redis.call('GET', KEYS[1]) == ARGV[1]
else
  is_held = held[1] or held[2]
end
return {clock(), is_held and 1 or 0, redis.call('ZRANGE', KEYS[2], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1000, 'WITHSCORES')}
