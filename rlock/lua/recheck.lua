-- What acquire does for waiters for whom nothing has changed: the lock is another's, and they have their places. These are stamped.
-- Nothing is done for any other, who is to ask by itself.
-- KEYS[2i-1] a lock  KEYS[2i] its queue  ARGV[2i-1] the waiter's entry there  ARGV[2i] its ticket
-- Reply: for each 1: as it was; 0: it is to ask
-- Twice: stamps again.
-- A request that comes late stamps an entry that has the ticket still, or nothing.
-- uses: clock
local now, locks = clock(), {}
for i = 1, #KEYS, 2 do
  locks[#locks + 1] = KEYS[i]
end
local all = redis.pcall('EXISTS', unpack(locks)) == #locks
local out = {}
for i = 1, #locks do
  local queue, entry = KEYS[2 * i], ARGV[2 * i - 1]
  out[i] = 0
  if (all or redis.pcall('EXISTS', locks[i]) == 1) and redis.pcall('ZSCORE', queue, entry) == ARGV[2 * i] then
    if type(redis.pcall('ZADD', queue, -now, '!' .. string.match(entry, '^%S+'))) == 'number' then
      out[i] = 1
    end
  end
end
return out
