-- Delete a plain mutex if it is its owner's, and tell the first in line, or wake the waiters where there is no line.
-- uses: plain_queue, owners, handover, clock
-- KEYS[1] the lock  KEYS[2] its line  KEYS[3] the queue of locks of this name that are a hash; without both (see plain_acquire) the
--   release is published
-- ARGV[1] owner  ARGV[2] channel  ARGV[3] PUBLISH or SPUBLISH  ARGV[4] grant channels, without the connection id
-- ARGV[5] entry of this owner that may be in line, or '' or none. The last three may not be sent: see acquire
-- Reply: 1 released; 0 the owner held nothing
-- Twice: a second run finds nothing, or another's, and says 0. An owner is never used again. A waiter is notified once.
if ARGV[1] == '' then -- see unfit, a function; this script makes none
  return redis.error_reply('ERR owner or lease is nothing that can be asked for')
end
local line, queue, publish, grants = KEYS[2], KEYS[3], ARGV[3] or 'PUBLISH', ARGV[4] or 'redlatch_grant:'
local held = redis.pcall('GET', KEYS[1])
local status = 0
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  status = 1
end
local place, behind_place = false, false -- of a waiter that leaves, in the line and in the queue
if line and ARGV[5] and ARGV[5] ~= '' then
  if status == 0 and held then
    place = redis.pcall('ZSCORE', line, ARGV[5])
    behind_place = redis.pcall('ZSCORE', queue, (string.gsub(ARGV[5], ' ', ' 0 ')))
  end
  redis.pcall('ZREM', line, ARGV[5])
  redis.pcall('ZREM', queue, (string.gsub(ARGV[5], ' ', ' 0 ')), '!' .. ARGV[1]) -- see stand_behind
end
local refused = type(held) == 'table' -- the key is not a string
if not refused then
  if status == 0 and held and not tonumber(place) then
    return status
  end
  if not line then
    if publish == 'SPUBLISH' then
      redis.pcall('SPUBLISH', ARGV[2], '0')
    else
      redis.pcall('PUBLISH', ARGV[2], '0')
    end
    return status
  end
  local waited = redis.pcall('EXISTS', line, queue)
  if waited ~= 1 and waited ~= 2 then -- or see emptied
    return status
  end
end
-- libraries
place, behind_place = tonumber(place), tonumber(behind_place)
if refused then -- another's, if it is a hash; a second run finds so what the first has handed over
  local left = redis.call('PTTL', KEYS[1])
  local holder = hash_holder(KEYS[1], left)
  if behind_place and holder == 3 then
    hint(queue, publish, grants, behind_place)
  end
  return holder and status or redis.call('GET', KEYS[1])
elseif place then -- it left another program's string: the next in line is to know when that ends
  if not ours(held) then
    hint(line, publish, grants, place)
  end
  return status
end
pass_on(KEYS[1], line, queue, publish, grants, (clock()))
return status
