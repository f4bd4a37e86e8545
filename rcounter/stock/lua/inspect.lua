-- Reads what a sale says of itself. Ends what is over first.
-- uses: clock, sale
--
-- KEYS     those of sale.lua
--
-- Replies  {0, epoch, ms, field, value …}   all of the hash; ms is the server's time
--          {-1, said, found} {-6, 0, 0} {-13, said, found}   see begin in sale.lua
--          {-12, 0, 0}                      call again: more is over
--
-- Safe to run twice: it ends what is over, and the second run finds that ended. Of a suspended sale it tells what the
-- hash says.
local wrong = begin()
if wrong and wrong[1] ~= -10 then return wrong end
if not wrong then
  mend_ends()
  forget(256)
  local more = lapse_due(256) > 0
  if s.wrong then return {-1, -1, 0} end
  if more then
    save()
    return {-12, 0, 0}
  end
end
local out = {0, s.epoch, s.now}
for i, text in ipairs(redis.call('HGETALL', s.sale)) do out[i + 3] = text end
return out
