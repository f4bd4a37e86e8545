-- Read the stored answer of a key without its bytes.
-- uses: integer
-- KEYS[1] the answer
-- Reply {ms left (-1 without an expiry), for how many of these ms it is old, number of its bytes, fingerprint}; the first
--   is -2 without an answer
-- Twice: reads only.
local fields = redis.call('HMGET', KEYS[1], 'stale', 'fingerprint')
return {redis.call('PTTL', KEYS[1]), require_integer(fields[1], 'stale time of the answer') or 0,
  redis.call('HSTRLEN', KEYS[1], 'answer'), fields[2] or ''}
