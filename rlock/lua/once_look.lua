-- Read the stored answer of a key without its bytes.
-- uses: answer, integer
-- KEYS[1] the answer
-- Reply {ms left (-1 without an expiry), for how many of these ms it is old, number of its bytes, fingerprint}; the first
--   is -2 without an answer
-- Twice: reads only.
read_answer(KEYS[1]) -- ends the script if the key has no answer of ours
local fields = redis.call('HMGET', KEYS[1], 'stale', 'fingerprint', 'answer')
return {redis.call('PTTL', KEYS[1]), read_integer(fields[1]) or 0, #(fields[3] or ''), fields[2] or ''}
