-- Turns a reservation into a sale, alone in its call.
-- uses: acts
--
-- KEYS, ARGV
-- Replies  see acts.lua in lib; the one act is 'C', id
--
-- Safe to run twice: see there. What comes first does in a straight line what acts.lua does, if nothing is out of the ordinary: the
-- stock sells, no record is missing, no hold is over, the reservation is held, and units are left. Before it has written anything
-- it can leave everything to acts.lua.
local m = redis.call('HMGET', KEYS[1], 'state', 'limit', 'sold', 'held', 'seq', 'recorded', 'requests', 'holds', 'epoch', 'end', 'ledger', 'gone')
for i = 2, 12 do m[i] = tonumber(m[i]) or 0 / 0 end -- what compares with nothing
local left = m[2] - m[3] - m[4]
if m[1] == '1' and left > 0 and m[8] > 0 and m[3] <= m[5] and m[9] > 0 and (m[6] == 0 or redis.call('HLEN', KEYS[2]) == m[6])
    and redis.call('HLEN', KEYS[3]) == m[7] and redis.call('ZCARD', KEYS[4]) == m[8] then
  local id, text, f = ARGV[5], string.format, '%.0f'
  local n, asked, made, deadline, claimant = string.match(redis.call('HGET', KEYS[3], 'r:' .. id) or '', '^H;0;(%d+);(%d+);([^;]*;)[^;]*;(%d+);(.*)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
  if n and now <= ARGV[3] + 0 and now < m[10] and n + 0 <= m[4] and m[5] + n <= 9007199254740991
      and tonumber(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]) > now then
    local ordinal = text(f, m[5] + 1)
    local said = m[11] == 0 and {}
    if m[11] == 1 then
      local l = redis.call('HMGET', KEYS[1], 'serial', 'moved')
      local serial = (tonumber(l[1]) or 0 / 0) + 1
      local there = redis.call('XLEN', KEYS[6])
      if serial - 1 - (tonumber(l[2]) or 0 / 0) == there then -- see tell in stock.lua
        said = {'serial', text(f, serial)}
        redis.call('XADD', KEYS[6], said[2] .. '-0', 'k', 'grant', 'e', text(f, m[9]), 'o', ordinal, 'n', n, 'c', claimant, 'r', id,
          'at', text(f, time[1] * 1000000 + time[2]))
        if there == 0 then redis.call('PEXPIRE', KEYS[6], text(f, m[12] - now + 3600000)) end -- LATER, see ends.lua
      end
    end
    if said then
      redis.call('HSET', KEYS[1], 'sold', text(f, m[3] + n), 'held', text(f, m[4] - n), 'seq', text(f, m[5] + n), 'holds', text(f, m[8] - 1), unpack(said))
      redis.call('HSET', KEYS[3], 'r:' .. id, 'G;' .. ordinal .. ';' .. n .. ';' .. asked .. ';' .. made .. ARGV[1] .. ';' .. deadline .. ';' .. claimant)
      redis.call('ZREM', KEYS[4], id)
      return {0, m[9], left, now, 1, m[5] + 1, n + 0, asked + 0, 0}
    end
  end
end
-- libraries
return flight()
