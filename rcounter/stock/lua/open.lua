-- Opens a sale, or says which one stands. Nothing else but restore.lua makes its hash.
-- uses: clock, ends, sale
--
-- KEYS     those of sale.lua
-- ARGV[1]  the server's ms until which this call may open it, 0 to ask
-- ARGV[2]  ms from now to the start   [3] ms from there to the end   [4] ms from there to the removal of all keys
-- ARGV[5]  ms for which the record of an order that has ended is kept
-- ARGV[6]  '1' if the sale keeps a ledger
-- ARGV[7]  all that Open was called with but the start, as one text
-- ARGV[8…] item, limit, units a user may have; 1 to 1024 times
--
-- Replies  {0, epoch, ms, spec}  it stands, opened by this call or another with this text; ms is the server's time
--          {-1, said, found}     records of a sale are there and its hash is not, or others: see begin in sale.lua
--          {-10, 0, 0}           it is suspended
--          {-11, ms, 0}          there is none, and it was only asked for or is too late: nothing changed
--          {-13, said, found}
--
-- Safe to run twice: the second run finds the sale. Safe however late: the sale is opened, sells, and is lost with all
-- that it had. Now it looks like one that never was, and a copy that the network held back arrives. It names a time
-- after which it opens nothing.
--
-- All times in the hash are the server's own, in ms; the arguments are differences. The epoch is the server's time in
-- us, so it differs for every opening of a name. The revision of change.lua begins at the epoch.
local wrong = begin()
if not wrong then
  mend_ends()
  return {0, s.epoch, s.now, redis.call('HGET', s.sale, 'spec')}
end
if wrong[1] ~= -6 then return wrong end
if expired(ARGV[1], s.now) then return {-11, s.now, 0} end
remove() -- what is over and not yet removed
local start = s.now + ARGV[2]
local ending = start + ARGV[3]
s.gone = ending + ARGV[4]
redis.call('HSET', s.sale, 'state', 1, 'start', digits(start), 'end', digits(ending), 'gone', digits(s.gone),
  'epoch', digits(s.micros), 'remember', ARGV[5], 'ledger', ARGV[6], 'spec', ARGV[7], 'revision', digits(s.micros),
  'serial', 0, 'moved', 0, 'fields', 0, 'counted', 0, 'reservations', 0, 'own', 0)
for i = 8, #ARGV, 3 do
  local name = ARGV[i]
  redis.call('HSET', s.sale, 'limit:' .. name, ARGV[i + 1], 'sold:' .. name, 0, 'reserved:' .. name, 0,
    'seq:' .. name, 0, 'per:' .. name, ARGV[i + 2])
end
redis.call('PEXPIRE', s.sale, ttl_until(s.gone, s.now))
return {0, s.micros, s.now, ARGV[7]}
