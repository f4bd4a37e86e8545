-- Take a fenced lock: see acquire.
-- uses: owners, handover, acquire, queue, clock, integer
-- KEYS[1] the lock  KEYS[2] its queue  KEYS[3] the last token; the lock alone will do (a slot is being migrated)
-- ARGV[1…6] as of acquire  ARGV[7] how long the last token is kept, ms  ARGV[8] as ARGV[7] of acquire
-- Reply as of acquire; a grant is {1, ms, server ms, 0, 0, token}
-- Twice: as acquire. A second run makes a second token, which no holder has. Both are above all earlier and below all later tokens.
local key, queue, last = KEYS[1], KEYS[2], KEYS[3]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local entry, kept = ARGV[6] ~= '' and ARGV[6] or nil, ARGV[7]
local no, now, us = check_request(owner, lease, ARGV[3])
if no then
  return no
end
-- Read before the lock is taken: what is not a token has to refuse the script while nothing has changed.
local before = last and require_integer(redis.call('GET', last), 'last token') or 0
if before > 9007199254740990 then
  return redis.error_reply('WRONGTYPE no token can follow the last one')
end
local reply
if ARGV[8] then
  reply = transfer_hold(key, owner, lease, now, ARGV[8])
else
  reply = acquire(key, queue_of(queue, ARGV[4], ARGV[5], now, us), owner, lease, now, existing_keys(key, queue), entry)
end
if reply[1] ~= 1 then
  return reply
end
-- A token is more than any before: one more than the last, which is kept for long, and at least the server's µs, so that
-- it is also more where the last one is forgotten (expired, flushed, restarted). A counter alone would start again from 1. Then the
-- next holder's writes would be refused forever, or the last one's accepted (TestTokens_KeysLost_KeepGrowing).
local token = us
if last then
  token = math.max(token, before + 1)
  if redis.call('PTTL', last) == -1 then -- made by Redisson, which counts from 1 when it is gone
    redis.call('SET', last, digits(token))
  else
    redis.call('SET', last, digits(token), 'PX', kept)
  end
end
return {1, reply[2], now, 0, 0, token}
