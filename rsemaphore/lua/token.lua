-- Make the fencing token of a permit that is out, of a semaphore that has one permit.
-- uses: clock, ids, integer
-- KEYS[1] count  KEYS[2] permits  KEYS[3] the last token
-- ARGV[1] id of the permit  ARGV[2] how long the last token is kept, ms
-- Reply {1, token}; {0, 0} the permit is not out; {2, number} there are that many permits, or out, and not one
-- Twice: a second run makes a second token for the same permit. Both are above all earlier and below all later tokens.
-- Only a permit that is out gets a token, and while it is out no other is: so the next holder of the permit has a later one.
--
--   holder A                           server                                  holder B
--   acquires                           A is out
--   asks for its token (is late)       A's lease ends; B is out
--                                                                              its token is 8
--                                      A's request runs: A is not out, and
--                                      gets none (with one it would have 9,
--                                      and the resource would refuse B)
local count, permits, last, id, kept = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local now, us = clock()
local before = require_integer(redis.call('GET', last), 'last token') or 0
if before > 9007199254740990 then
  return redis.error_reply('WRONGTYPE no token can follow the last one')
end
local ends_at = tonumber(redis.call('ZSCORE', permits, id) or 0)
if expired(ends_at, now) then
  return {0, 0}
end
local out = redis.call('ZCARD', permits)
local capacity = (stored_count(count) or 0) + out
if capacity ~= 1 or out ~= 1 then -- more may be out than there are: see resize
  return {2, math.max(capacity, out)}
end
-- As of a Fenced lock: more than the last one, which is kept for long, and at least the server's µs, so that it is also
-- more where the last one is forgotten.
local token = math.max(us, before + 1)
redis.call('SET', last, digits(token), 'PX', kept)
return {1, token}
