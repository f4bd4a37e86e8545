-- Say who holds what a caller has waited for in vain: a few of those that are out, first those whose leases end first.
-- KEYS[1] permits, or the leases of weights  KEYS[2] the notes of permits, or the record of weights
-- ARGV[1] how many at most
-- Reply {server ms, id or base, end, label or "<weight> <label>", id or base, …}
-- Twice: reads only. Its cost does not grow with what is out.
-- uses: clock
local now = clock()
local out = redis.call('ZRANGE', KEYS[1], digits(now), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
local reply = {digits(now)}
for i = 1, #out, 2 do
  reply[#reply + 1] = out[i]
  reply[#reply + 1] = digits(tonumber(out[i + 1]))
  reply[#reply + 1] = redis.call('HGET', KEYS[2], out[i]) or ''
end
return reply
