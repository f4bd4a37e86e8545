-- Return the answer that is stored for a key, or acquire the right to make it: see fenced_acquire.
-- uses: owners, handover, acquire, queue, clock, token, answer
-- KEYS[1] the lock  KEYS[2] its queue  KEYS[3] the last token  KEYS[4] the answer. All are needed: while a slot is being
--   migrated, the request is refused
-- ARGV[1…8] as of fenced_acquire
-- Reply as of fenced_acquire. A grant has two more parts, if there is an old answer: for how many ms it is served, and
--   its text (see answer). And {7, for how many ms it is served, server ms, text}: answered. So is a request that finds an
--   old answer, and another owner that renews it
-- Twice: as fenced_acquire. The second run may find an answer that another owner has stored meanwhile, and gives a grant
--   of the first run back.
local key, queue, token_key, answer_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local entry, retention = ARGV[6] ~= '' and ARGV[6] or nil, ARGV[7]
local refusal, now, us = check_request(owner, lease, ARGV[3])
if refusal then
  return refusal
end
local last_token = read_last_token(token_key)
local text, is_fresh, left = read_answer(answer_key)
local q, reply, unclaimed = queue_of(queue, ARGV[4], ARGV[5], now, us), nil, 0
if ARGV[8] then
  reply = transfer_hold(key, owner, lease, now, ARGV[8])
else
  local existing = existing_keys(key, queue)
  unclaimed = existing == 0 and 1 or 0
  if not is_fresh then
    reply = acquire(key, q, owner, lease, now, existing, entry)
  elseif existing >= 2 then -- the lock may be this owner's, if it was handed over although there is an answer
    redis.call('HDEL', key, owner, owner .. '!')
  end
  if text and (is_fresh or reply[1] == 0) then
    if entry then
      dequeue(q, entry)
    end
    if is_fresh and existing % 2 == 1 then
      serve_answer(q, text)
    end
    return {7, left, now, text}
  end
end
if reply[1] ~= 1 then
  return reply
end
return {1, reply[2], now, unclaimed, 0, mint_token(token_key, last_token, us, retention), text and left, text}
