-- Store the answer of the owner that holds the lock, release the lock, and give the answer to all waiters.
-- uses: owners, handover, queue, clock, integer, answer, send
-- KEYS[1] the lock  KEYS[2] its queue  KEYS[3] the answer. All are needed: while a slot is being migrated, the request is
--   refused
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH  ARGV[4] grant channels, without the connection id
-- ARGV[5] entry of this owner that may be in the queue, or ''  ARGV[6] how long the answer is served, ms  ARGV[7] for how
--   many of these ms it is old  ARGV[8] fingerprint  ARGV[9] answer
-- Reply: 1 stored; 0 the owner holds nothing, and nothing is stored: a late owner never overwrites
-- Twice: the second run finds the answer of the same owner, and replies 1. The second run writes the owner again, because
--   WAIT confirms the writes of its own connection.
local key, queue, answer_key, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if not is_valid(owner, tonumber(ARGV[6])) then
  return redis.error_reply('ERR owner or time is not valid')
end
local before = redis.call('HMGET', answer_key, 'stale', 'by')
require_integer(before[1], 'stale time of the answer')
if redis.call('HEXISTS', key, owner) == 0 then
  if before[2] == owner then
    redis.call('HSET', answer_key, 'by', owner)
    return 1
  end
  return 0
end
redis.call('HSET', answer_key, 'stale', ARGV[7], 'fingerprint', ARGV[8], 'answer', ARGV[9], 'by', owner)
set_expiry(answer_key, ARGV[6])
redis.call('HDEL', key, owner, owner .. '!')
local q = queue_of(queue, ARGV[3], ARGV[4], clock())
if ARGV[5] ~= '' then
  redis.pcall('ZREM', queue, ARGV[5], '!' .. owner)
end
local existing = existing_keys(key, queue, true) or 0
if existing % 2 == 1 then
  serve_answer(q, #ARGV[8] .. ' ' .. ARGV[8] .. ARGV[9])
end
if existing < 2 then
  send(ARGV[3], ARGV[2], '0')
end
return 1
