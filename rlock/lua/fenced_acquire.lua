-- Acquire a fenced lock: see acquire.
-- uses: owners, handover, acquire, queue, clock, token
-- KEYS[1] the lock  KEYS[2] its queue  KEYS[3] the last token. While a slot is being migrated, KEYS[1] alone
-- ARGV[1…6] as of acquire  ARGV[7] how long the last token is kept, ms  ARGV[8] as ARGV[7] of acquire
-- Reply as of acquire; a grant is {1, ms, server ms, 1 if the lock was free and its queue is empty, 0, token}
-- Twice: as acquire. A second run makes a second token, which no holder has. Both tokens are larger than all earlier
--   tokens, and smaller than all later ones. The second run finds the lock held, and replies 0 for the queue. Then the
--   process limits its turns as if others were queued, because they may have come between the two runs.
local key, queue, token_key = KEYS[1], KEYS[2], KEYS[3]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local entry, retention = ARGV[6] ~= '' and ARGV[6] or nil, ARGV[7]
local refusal, now, us = check_request(owner, lease, ARGV[3])
if refusal then
  return refusal
end
local last_token = read_last_token(token_key)
local reply, unclaimed = nil, 0
if ARGV[8] then
  reply = transfer_hold(key, owner, lease, now, ARGV[8])
else
  local existing = existing_keys(key, queue)
  unclaimed = queue and existing == 0 and 1 or 0
  reply = acquire(key, queue_of(queue, ARGV[4], ARGV[5], now, us), owner, lease, now, existing, entry)
end
if reply[1] ~= 1 then
  return reply
end
return {1, reply[2], now, unclaimed, 0, mint_token(token_key, last_token, us, retention)}
