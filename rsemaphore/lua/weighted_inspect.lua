-- Look at a semaphore of weights without changing it.
-- KEYS[1] main  KEYS[2] leases
-- ARGV[1] 1: with all that is out  ARGV[2…] bases to look at, each whether or not it is out
-- Reply {server ms, capacity (0: it is not in use), used; leases that are over count as given back; base, end (0: it is not out) and "<weight> <label>"
--   of each}
-- Twice: reads only.
-- uses: clock, integer, weights
local main, leases, all = KEYS[1], KEYS[2], ARGV[1] == '1'
local now = clock()
local noted = redis.call('HMGET', main, 'capacity', 'used')
local capacity, used = whole(noted[1], 'capacity of a semaphore') or 0, whole(noted[2], 'use of a semaphore') or 0
local out
if all then
  out = redis.call('ZRANGE', leases, '-inf', '+inf', 'BYSCORE', 'WITHSCORES')
else -- of more that are over the others count as used, until calls have given them back: see weighed
  out = redis.call('ZRANGE', leases, '-inf', elapsed(now), 'BYSCORE', 'LIMIT', 0, 1000, 'WITHSCORES')
end
local reply = {digits(now), digits(capacity)}
if #out == 0 and redis.call('EXISTS', leases) == 0 then
  used = 0
end
for i = 1, #out, 2 do
  local text = redis.call('HGET', main, out[i])
  if text and expired(out[i + 1], now) then
    used = used - read_weight(text)
  elseif text then
    read_weight(text)
    reply[#reply + 1] = out[i]
    reply[#reply + 1] = digits(tonumber(out[i + 1]))
    reply[#reply + 1] = text
  end
end
for i = 2, #ARGV do
  reply[#reply + 1] = ARGV[i]
  reply[#reply + 1] = digits(tonumber(redis.call('ZSCORE', leases, ARGV[i]) or 0))
  local text = redis.call('HGET', main, ARGV[i])
  read_weight(text)
  reply[#reply + 1] = text or ''
end
table.insert(reply, 3, digits(used))
return reply
