-- Buys a unit of the item '' for each of some users, by an order of its own name.
-- uses: acts, sale
--
-- KEYS     those of sale.lua
-- ARGV[1]  '1' to write something even if nothing is sold: see decide in acts.lua
-- ARGV[2…] the users, 1 to 128, none of them twice
--
-- Replies  those of act.lua, with three for each user
--
-- Safe to run twice: the second run finds the records of the first.
--
-- What comes first does it in a straight line in a sale that is open, lacks nothing, and has no reservation, no count
-- and no ledger. Before it has written it can leave all to the rest.
repeat
  local text, f, ask, none = string.format, '%.0f', ARGV, 0 / 0
  local m = redis.call('HMGET', KEYS[1], 'sold:', 'seq:', 'fields', 'limit:', 'reserved:', 'reservations', 'state',
    'counted', 'ledger', 'start', 'end', 'epoch', 'own', 'gone')
  if m[7] ~= '1' or m[6] ~= '0' or m[8] ~= '0' or m[9] ~= '0' then break end
  local sold, seq, recorded = tonumber(m[1]) or none, tonumber(m[2]) or none, tonumber(m[3]) or none
  local left, epoch = (tonumber(m[4]) or none) - sold - (tonumber(m[5]) or none), tonumber(m[12]) or none
  local time = redis.call('TIME')
  local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
  if not (left >= 0 and sold >= 0 and sold <= seq and epoch > 0 and seq < 9007199254740000
      and now >= (tonumber(m[10]) or none) and now < (tonumber(m[11]) or none)
      and redis.call('HLEN', KEYS[2]) == recorded) then break end
  if not ask[3] and left > 1 and m[13] == '1' then -- one user, the most frequent call
    local record = redis.call('HGET', KEYS[2], ask[2])
    if record then
      if not record:find('^%d') then break end
      if ask[1] == '1' then redis.call('HSET', KEYS[1], 'state', '1') end
      return {0, epoch, now, 0, record, 1}
    end
    local ordinal = text(f, seq + 1) -- to write a number costs as much as a command
    redis.call('HSET', KEYS[1], 'sold:', sold == seq and ordinal or text(f, sold + 1), 'seq:', ordinal, 'fields',
      recorded == seq and ordinal or text(f, recorded + 1))
    redis.call('HSET', KEYS[2], ask[2], ordinal)
    return {0, epoch, now, 0, ordinal, 0}
  end
  local found, out, at, set, k = redis.call('HMGET', KEYS[2], unpack(ask, 2)), {0, epoch, now}, 3, {}, 0
  local finds, empty, decided = false, false, true
  for i = 1, #ask - 1 do
    local record = found[i]
    if record then
      if not record:find('^%d') then decided = false break end
      finds, out[at + 1], out[at + 2], out[at + 3] = true, 0, record, 1
    elseif left < 1 then
      empty, out[at + 1], out[at + 2], out[at + 3] = true, 3, '0', 1
    else
      left, seq = left - 1, seq + 1
      local ordinal = text(f, seq)
      set[k + 1], set[k + 2], k = ask[i + 1], ordinal, k + 2
      out[at + 1], out[at + 2], out[at + 3] = 0, ordinal, 0
    end
    at = at + 3
  end
  if not decided then break end
  if k > 0 then
    redis.call('HSET', KEYS[1], 'sold:', text(f, sold + k / 2), 'seq:', set[k], 'fields', text(f, recorded + k / 2),
      'own', '1')
    redis.call('HSET', KEYS[2], unpack(set))
    if recorded == 0 then redis.call('PEXPIRE', KEYS[2], text(f, m[14] - now + 3600000)) end -- LATER, see ends.lua
  elseif finds and ask[1] == '1' then
    redis.call('HSET', KEYS[1], 'state', '1')
  end
  if left < 1 and (k > 0 or empty and redis.call('HEXISTS', KEYS[4], '') == 0) then
    redis.call('HSET', KEYS[4], '', text(f, epoch))
    redis.call('PEXPIRE', KEYS[4], text(f, m[11] - now))
  end
  return out
until true
-- libraries
local MAX_MS = '9007199254740991'
local ask = {ARGV[1], MAX_MS}
for i = 2, #ARGV do
  local at = #ask
  ask[at + 1], ask[at + 2], ask[at + 3], ask[at + 4], ask[at + 5] = 'B', ARGV[i], MAX_MS, ARGV[i], ',1'
end
return decide(ask)
