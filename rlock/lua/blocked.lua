-- Record that a call waits for a lock while it holds others, or remove the record: see deadlock.go.
-- uses: clock
-- KEYS[1] the calls that wait for the lock, a sorted set: record -> server ms of its last request
-- ARGV[1] the record, or '' to write none  ARGV[2] a record to remove, or ''
-- Reply: server ms
-- Twice: the same record is written later. It counts as waiting until then, as after one run at that time.
local now = clock()
if ARGV[2] ~= '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
end
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], digits(now), ARGV[1])
  local old = redis.call('ZRANGE', KEYS[1], '-inf', elapsed(now - 60000), 'BYSCORE', 'LIMIT', 0, 16) -- of processes that died
  if #old > 0 then
    redis.call('ZREM', KEYS[1], unpack(old))
  end
  redis.call('PEXPIRE', KEYS[1], 60000)
end
return now
