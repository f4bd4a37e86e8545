-- Delete a plain mutex if it is its owner's, and serve the first in line, or wake the waiters where there is no queue.
-- uses: owners, handover, queue, clock
-- KEYS[1] the lock  KEYS[2] its queue; without it (a slot is being migrated) the release is published
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH  ARGV[4] grant channels, without the connection id
-- ARGV[5] entry of this owner that may be in the queue, or '' or none. The last three may not be sent: see acquire
-- Reply: 1 released; 0 the owner held nothing
-- Twice: a second run finds nothing, or another's, and says 0. An owner is never used again. A waiter is told once.
if ARGV[1] == '' then -- see validation_error, a function; this script makes none
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local key, queue, publish, grants, leave = KEYS[1], KEYS[2], ARGV[3] or 'PUBLISH', ARGV[4] or 'redlatch_grant:', ARGV[5] or ''
local held, status = redis.pcall('GET', key), 0
if held == ARGV[1] then
  redis.call('DEL', key)
  held, status = false, 1
end
if leave == '' or not queue then -- the common case: nobody leaves, and nobody waits
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
local place = queue and leave ~= '' and tonumber((redis.pcall('ZSCORE', queue, leave))) -- of a waiter that leaves: see hint
if place then
  if redis.pcall('ZCOUNT', queue, '(0', '(' .. digits(place)) == 0 then -- the first: the lock is left to it no longer
    redis.pcall('ZREM', queue, '!told')
  end
  dequeue(q, leave)
end
if held then
  local holder = 0
  if type(held) == 'table' then -- not a string: another's, if it is a hash; a second run finds so what the first has handed over
    holder = hash_holder(key, redis.call('PTTL', key))
    if not holder then
      return redis.call('GET', key)
    end
  elseif not is_ours(held) then
    holder = 3
  end
  if place and holder == 3 then -- the next in line is to know when that ends
    hint(q, place)
  end
elseif existing_keys(key, queue, true) == 1 then
  q.now, q.us = clock()
  hand_over(key, q)
end
return status
