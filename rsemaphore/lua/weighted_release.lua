-- Give a weight back, all of it or a part, and hand it to those that wait.
-- KEYS[1] main  KEYS[2] leases  KEYS[3] queue
-- ARGV[1] base  ARGV[2] what is kept (0: all is given back; -1: all of it and of the others, if all are held)  ARGV[3] channel  ARGV[4] PUBLISH or SPUBLISH
-- ARGV[5] channels of grants, without the process  ARGV[6] the process
-- ARGV[7] the owner's entry, if it may be in the queue; or ''
-- ARGV[8…] base and entry of others that leave, too, with all that they have: see release
-- Reply {the weight that was held, its lease not over (0: none; -1: not all were held, nothing given back), ms after which to ask for the first in line (-1: another process
--   does), lease and base of those of this process that were served}
-- Twice: what is kept is said, not what is given back, so the second run finds nothing more to give. What the first run served for
--   this process is found by those when they ask.
-- uses: clock, queue, weights
local main, leases, base, kept, channel = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now, us = clock()
local q = {key = KEYS[3], publish = ARGV[4], grants = ARGV[5], conn = ARGV[6], now = now, us = us,
  most = math.huge}
local lined = redis.pcall('ZCARD', q.key) -- of another type it prevents no release
lined = type(lined) == 'number' and lined > 0
for i = 7, lined and #ARGV or 0, 2 do
  if ARGV[i] ~= '' then
    redis.call('ZREM', q.key, ARGV[i], '!p' .. string.sub(ARGV[i], 1, 13))
  end
end
local capacity, used, _, freed = weighed(main, leases, now)
if not capacity then
  return {0, -1}
end

-- Returns the weight that is held under a base, and its label; nil: it is over, or not out.
local function holds(of)
  local n, label = weight_of(main, of)
  local till = n and redis.call('ZSCORE', leases, of)
  if till and not expired(till, now) then
    return n, label
  end
end

local held, label = holds(base)
local all = held
for i = 8, kept < 0 and #ARGV or 0, 2 do
  all = all and holds(ARGV[i])
end
if kept < 0 and not all then
  return {-1, -1}
end
local leave = {} -- also what is over, if there was too much of that to give it back before
if kept <= 0 then
  leave[1] = base
elseif held and kept < held then
  freed, used = freed + held - kept, used - held + kept
  redis.call('HSET', main, base, digits(kept) .. ' ' .. label, 'used', digits(used))
end
for i = 8, #ARGV, 2 do
  leave[#leave + 1] = ARGV[i]
end
if #leave > 0 then
  local back = give_back(main, leases, leave, used, now)
  freed, used = freed + back, used - back
end
local available, own, look, head, longest = capacity - used, {}, -1, nil, 0
if lined then
  refresh_process(q)
  available, own, look, head, longest = serve(q, available, capacity, weighing(main, leases, now))
end
if longest > 0 then
  note_weights(main, leases, capacity, capacity - available, longest + 1)
end
if freed > 0 and not head then
  wake_weights(q, channel, available)
end
local reply = {held or 0, look}
for _, word in ipairs(own) do
  reply[#reply + 1] = word
end
return reply
