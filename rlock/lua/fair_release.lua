-- Take an owner out of a fair lock, and hand the lock to the first in line or wake it: see release.
-- uses: owners, fair, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) no one is
--   served  KEYS[4] places of those that can be handed the lock; without it none can
-- ARGV[1] owner  ARGV[2] channel, without ":" and the owner  ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '' or not: this owner may stand in line, and leaves it  ARGV[5] grant channels, without the connection id
-- ARGV[6…] others that leave, too: each may hold the lock, or stand in line, or neither. So those that leave the line together are one
--   call, and none of them is served on the way
-- Reply: 1 released; 0 none of them held anything
-- Twice: as release. A second run finds the lock held by the one that was handed it, or has notified a first in line once more.
local key, queue, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]
local bad = validation_error(owner, 1)
if bad then
  return bad
end
local all = {owner, unpack(ARGV, 6)}
-- A waiter of a lock that is a string leaves its queue all the same.
local hash = redis.pcall('HEXISTS', key, owner)
local released = type(hash) == 'number' and remove_owners(key, all, 1, #all) > 0 and 1 or 0
if not queue then
  return type(hash) == 'number' and released or redis.call('HEXISTS', key, owner)
end
local q, first = queue_of(queue, ARGV[3], ARGV[5]), false -- whether the first of ours has left
if ARGV[4] ~= '' then
  first = dequeue_fair(q, timeouts, places, owner, true)
end
for i = 6, #ARGV do
  first = dequeue_fair(q, timeouts, places, ARGV[i], true) or first
end
if type(hash) == 'table' then
  local left = redis.call('PTTL', key)
  local holder = string_holder(key, left)
  if first and holder == 3 then
    hint_ours(q)
  end
  return holder and 0 or redis.call('HEXISTS', key, owner)
end
local there = redis.pcall('EXISTS', key)
if there ~= 1 then
  q.now = clock()
  hand_over_fair(there == 0 and key, q, timeouts, places, ARGV[2])
elseif first and held_by_other_program(key) then
  hint_ours(q)
end
return released
