-- Remove an owner from a fair lock, and hand the lock to the first waiter, or notify it: see release.
-- uses: owners, fair, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) no waiter
--   is served  KEYS[4] the waiters that can be handed the lock; without it no waiter can
-- ARGV[1] owner  ARGV[2] channel, without ":" and the owner  ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '' or not: this owner may be queued, and leaves  ARGV[5] grant channels, without the connection id
-- ARGV[6…] other owners that leave: each may hold the lock, or be queued, or neither. Owners that leave together share
--   a call, so that no owner among them is served meanwhile
-- Reply: 1 released; 0 no owner among them held anything
-- Twice: as release. A second run finds the lock held by the waiter that was handed it, or notifies the first waiter
--   once more.
local key, queue, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]
local refusal = validation_error(owner, 1)
if refusal then
  return refusal
end
local owners = {owner, unpack(ARGV, 6)}
-- A waiter of a lock that is a string leaves its queue all the same.
local hash = redis.pcall('HEXISTS', key, owner)
local released = type(hash) == 'number' and remove_owners(key, owners, 1, #owners) > 0 and 1 or 0
if not queue then
  return type(hash) == 'number' and released or redis.call('HEXISTS', key, owner)
end
local q, first_has_left = queue_of(queue, ARGV[3], ARGV[5]), false -- the first waiter of this library
if ARGV[4] ~= '' then
  first_has_left = dequeue_fair(q, timeouts, places, owner, true)
end
for i = 6, #ARGV do
  first_has_left = dequeue_fair(q, timeouts, places, ARGV[i], true) or first_has_left
end
if type(hash) == 'table' then
  local left = redis.call('PTTL', key)
  local holder = string_holder(key, left)
  if first_has_left and holder == 3 then
    hint_ours(q)
  end
  return holder and 0 or redis.call('HEXISTS', key, owner)
end
local existing = redis.pcall('EXISTS', key)
if existing ~= 1 then
  q.now = clock()
  hand_over_fair(existing == 0 and key, q, timeouts, places, ARGV[2])
elseif first_has_left and held_by_other_program(key, true) then
  hint_ours(q)
end
return released
