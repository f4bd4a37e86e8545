-- Acquire a fair lock for an owner, or for several owners of one process in their order: see acquire.
-- uses: owners, acquire, fair, queue, clock
-- KEYS[1] the lock  KEYS[2] Redisson's queue  KEYS[3] its timeouts; without both (a slot is being migrated) no waiter
--   queues, and any request is granted the free lock  KEYS[4] the waiters that can be handed the lock; without it no
--   waiter can
-- ARGV[1] owner  ARGV[2] lease, ms  ARGV[3] not after, server ms (0: any time)
-- ARGV[4] PUBLISH or SPUBLISH  ARGV[5] channel, without ":" and the owner
-- ARGV[6] patience, ms: the owner queues, and counts as dead after so long without a request; '': it does not queue
-- ARGV[7] grant channels, without the connection id  ARGV[8] entry of a waiter that hears grants; ''
-- ARGV[9…] three for each further owner, as ARGV[1], ARGV[2] and ARGV[8]
-- Reply {status, ms, server ms, …}, as acquire. If other waiters are first, ms is until the first of them counts as
--   dead. After the ticket: 1 if the waiter may be notified on its own channel when it is the first. This is so if it
--   has no entry in KEYS[4], or if the holder, the first waiter or the waiter right before it is Redisson's. With
--   further owners: a list of such replies, or one reply if the request came too late
-- Twice: as acquire; a queued owner keeps its place and its ticket.
local key, queue, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal, now, us = check_request(ARGV[1], tonumber(ARGV[2]), ARGV[3])
for i = 9, #ARGV, 3 do
  refusal = refusal or validation_error(ARGV[i], tonumber(ARGV[i + 1]))
end
if refusal then
  return refusal
end
local q = queue_of(queue, ARGV[4], ARGV[7], now, us)
local left_to, left_until -- the waiter to which this run left the free lock; it is notified once

-- Acquires the lock for one owner. Returns the reply. The owners of a call see the lock as if each had made a call of its
-- own, one right after the other: an owner is granted the lock, and the next owners queue behind it.
local function acquire_fair(owner, lease, entry)
  local left = redis.call('PTTL', key)
  local holder -- of a lock that is a string: see acquire
  if left ~= -2 then
    local held = redis.pcall('HMGET', key, owner, owner .. '!')
    if held.err then
      holder, held = string_holder(key, left) or redis.call('HMGET', key, owner), {}
    end
    local ends_at = held[2] and tonumber(held[2])
    if held[1] and ends_at and expired(ends_at, now) then -- the owner was joined, or was released: see acquire
      return {3, 0, now}
    elseif held[1] then
      return grant(key, owner, lease, now, left, ends_at)
    end
  end
  local head, served
  if left ~= -2 then
    if queue then
      head = first_alive(q, timeouts, places, MAX_DROPS)
    end
  else
    if queue and left_to and left_to ~= owner then
      head = left_to
    elseif queue then
      served, head, left_until = hand_over_fair(key, q, timeouts, places, ARGV[5], owner)
      left_to = head
    end
    if not served and (not head or head == owner) then
      if head then
        dequeue_fair(q, timeouts, places, owner)
      end
      return grant(key, owner, lease, now)
    end
    left = served and redis.call('PTTL', key) or math.ceil(left_until - now)
  end
  local ticket, foreign = 0, false
  if queue and ARGV[6] ~= '' then
    ticket, foreign = enqueue_fair(q, timeouts, places, owner, tonumber(ARGV[6]), entry)
    foreign = foreign or ticket == 0 or head and not is_ours(head)
    foreign = foreign or not holder and held_by_other_program(key)
  end
  return {0, left, now, ticket, holder or foreign and 1 or 0}
end

local replies = {acquire_fair(ARGV[1], tonumber(ARGV[2]), ARGV[8])}
for i = 9, #ARGV, 3 do
  replies[#replies + 1] = acquire_fair(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
end
return #replies == 1 and replies[1] or replies
