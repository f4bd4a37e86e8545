-- Reads the first entries of a ledger. Ends what is over first, so that the ledger tells of it though no customer comes.
-- uses: clock, sale
--
-- KEYS     those of sale.lua
-- ARGV[1]  how many at most
-- ARGV[2]  '1' to write something if there are entries: see decide in acts.lua
--
-- Replies  {{0, 0, 0}, entries}   as XRANGE has them
--          {{-1, said, found}, {}} {{-6, 0, 0}, {}} {{-10, 0, 0}, {}} {{-13, said, found}, {}}   see begin in sale.lua
--
-- Safe to run twice: it ends what is over, and the second run finds that ended.
local wrong = begin()
if wrong then return {wrong, {}} end
mend_ends()
forget(256)
lapse_due(256)
if s.wrong then return {{-1, -1, 0}, {}} end
if not save() and ARGV[2] == '1' and s.found[3] > 0 then redis.call('HSET', s.sale, 'state', digits(s.state)) end
return {{0, 0, 0}, redis.call('XRANGE', s.ledger, '-', '+', 'COUNT', ARGV[1])}
