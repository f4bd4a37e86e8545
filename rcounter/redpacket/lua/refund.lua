-- Takes what is left of a red packet whose time is over back to its sender.
-- uses: clock, ends, packet
--
-- KEYS     those of packet.lua
-- ARGV[1]  '1' to write something even if it was refunded before: see grab.lua
--
-- Replies  {0, epoch, again, shares, cents}   again is 1 if it was refunded before
--          {4, ms to the end, 0}              not over
--          {-1, said, found} {-6, 0, 0} {-10, 0, 0} {-13, said, found}   see begin in packet.lua
--
-- Safe to run twice: the second run finds it refunded. What is refunded cannot be taken any more: the state forbids it. The entry of the
-- ledger comes first, as in grab.lua. If a user lacks the right to remove the shares, the next run removes them.
local wrong = begin()
if wrong then return wrong end
local again = p.state == 2 and 1 or 0
if again == 0 then
  if not begun(p['end'], p.now) then return {4, p['end'] - p.now, 0} end
  log('refunded', 0, p.left, '', p.rest)
  redis.call('HSET', packet, 'state', 2, 'serial', digits(p.serial))
  if p.ledger == 1 then mend_ends() end
elseif ARGV[1] == '1' then
  redis.call('HSET', packet, 'state', 2)
end
redis.call('UNLINK', shares)
return {0, p.epoch, again, p.left, p.rest}
