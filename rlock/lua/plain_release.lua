-- Delete a plain mutex if the owner holds it, and serve the first waiter; without a queue publish the release.
-- uses: owners, handover, queue, clock
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) the release is published
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH  ARGV[4] grant channels, without the connection id
-- ARGV[5] entry of this owner that may be in the queue, '' or none. The last three may be missing: see acquire
-- Reply: 1 released; 0 the owner held nothing
-- Twice: a second run finds no key, or another owner's, and replies 0. An owner is never used again. A waiter is
--   notified once.
if ARGV[1] == '' then -- see validation_error; the common case makes no function
  return redis.error_reply('ERR owner or lease is not valid')
end
local key, queue, publish, grants, own_entry = KEYS[1], KEYS[2], ARGV[3] or 'PUBLISH', ARGV[4] or 'redlatch_grant:', ARGV[5] or ''
local held, status = redis.pcall('GET', key), 0
if held == ARGV[1] then
  redis.call('DEL', key)
  held, status = false, 1
end
if own_entry == '' or not queue then -- the common case: the owner is not queued, and the queue is empty
  if held and type(held) == 'string' then
    return status
  elseif not held and not queue then
    if publish == 'SPUBLISH' then
      redis.pcall('SPUBLISH', ARGV[2], '0')
    else
      redis.pcall('PUBLISH', ARGV[2], '0')
    end
    return status
  elseif not held and redis.pcall('EXISTS', queue) ~= 1 then -- or see existing_keys
    return status
  end
end
-- libraries
local q = queue_of(queue, publish, grants)
local left_score = queue and own_entry ~= '' and tonumber((redis.pcall('ZSCORE', queue, own_entry))) -- the score of an entry that is removed: see hint
if left_score then
  if redis.pcall('ZCOUNT', queue, '(0', '(' .. digits(left_score)) == 0 then -- the first waiter: its reservation ends
    redis.pcall('ZREM', queue, '!told')
  end
  dequeue(q, own_entry)
end
if held then
  local holder = 0
  if type(held) == 'table' then -- a hash is another owner's lock: a second run finds the lock that the first handed over
    holder = hash_holder(key, redis.call('PTTL', key))
    if not holder then
      return redis.call('GET', key)
    end
  elseif not is_ours(held) then
    holder = 3
  end
  if left_score and holder == 3 then -- the next waiter has to learn of the holder's release
    hint(q, left_score)
  end
elseif existing_keys(key, queue, true) == 1 then
  q.now, q.us = clock()
  hand_over(key, q)
end
return status
