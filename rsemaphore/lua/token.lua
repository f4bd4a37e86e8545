-- Make the fencing token of a held permit, of a semaphore that has one permit.
-- uses: clock, ids, integer
-- KEYS[1] count  KEYS[2] permits  KEYS[3] the last token
-- ARGV[1] id of the permit  ARGV[2] how long the last token is kept, ms
-- Reply {1, token}; {0, 0} the permit is not held; {2, number} the semaphore has so many permits, or so many are held
-- Twice: a second run makes a second token for the same permit. Both are larger than all earlier tokens, and smaller
--   than all later ones.
-- Only a held permit gets a token, and no other permit is held at the same time. So the next holder's token is larger.
--
--   holder A                           server                                  holder B
--   acquires                           A's permit is held
--   requests its token (is late)       A's lease ends; B's permit is held
--                                                                              its token is 8
--                                      A's request runs: A holds nothing, and
--                                      gets no token (with one it would have
--                                      9, and the resource would refuse B)
local count, permits, token_key, id, retention = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local now, us = clock()
local last_token = require_integer(redis.call('GET', token_key), 'last token') or 0
if last_token > 9007199254740990 then
  return redis.error_reply('WRONGTYPE no token can follow the last one')
end
local ends_at = tonumber(redis.call('ZSCORE', permits, id) or 0)
if expired(ends_at, now) then
  return {0, 0}
end
local held_count = redis.call('ZCARD', permits)
local capacity = (stored_count(count) or 0) + held_count
if capacity ~= 1 or held_count ~= 1 then -- more permits may be held than the capacity: see resize
  return {2, math.max(capacity, held_count)}
end
-- Like the token of a Fenced lock: larger than the last token, which is kept for long, and at least the server's µs, so
-- that the token is larger even if the last token was lost.
local token = math.max(us, last_token + 1)
redis.call('SET', token_key, digits(token), 'PX', retention)
return {1, token}
