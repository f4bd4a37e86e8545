-- What acquire does for waiters for whom nothing has changed, each of another semaphore: there are too few permits, no lease is over, and they
-- have their places. These are stamped. Nothing is done for any other, who is to ask by itself.
-- KEYS[3i-2] count  KEYS[3i-1] permits  KEYS[3i] queue  ARGV[2i-1] the waiter's entry there  ARGV[2i] its ticket
-- Reply: for each ms until enough leases are over for it, had it all that is free; 0: it is to ask
-- Twice: stamps again.
-- A request that comes late stamps a process whose entry has the ticket still, or nothing.
-- uses: clock, queue
local now = clock()
local out = {}
for i = 1, #KEYS / 3 do
  local count, permits, queue, entry = redis.pcall('GET', KEYS[3 * i - 2]), KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1]
  local available = type(count) == 'string' and tonumber(count)
  local _, n, _, _, who = read_entry(entry)
  out[i] = 0
  if available and n and available < n and redis.pcall('ZSCORE', queue, entry) == ARGV[2 * i] then
    local nth = n - available - 1 -- the lease whose end frees enough
    local till = tonumber(redis.pcall('ZRANGE', permits, nth, nth, 'WITHSCORES')[2] or '')
    if till and not expired(till, now) and type(redis.pcall('ZADD', queue, -now, '!' .. who)) == 'number' then
      redis.pcall('PEXPIRE', queue, QUEUE_TTL)
      out[i] = math.max(1, math.min(till - now, 86400000))
    end
  end
end
return out
