-- Holds n units for a claimant until a deadline, alone in its call.
-- uses: acts
--
-- KEYS, ARGV
-- Replies  see acts.lua in lib; the one act is 'R', id, claimant, n, ms
--
-- Safe to run twice: see there. What comes first does in a straight line what acts.lua does, if nothing is out of the ordinary: the
-- stock sells, no record is missing, no hold is over, nothing is to be forgotten, the id is new, its claimant may have the units, and more than these are left.
-- Before it has written anything it can leave everything to acts.lua.
local m = redis.call('HMGET', KEYS[1], 'state', 'limit', 'sold', 'held', 'recorded', 'requests', 'holds', 'per', 'start', 'end', 'gone', 'epoch', 'ledger', 'remember')
for i = 2, 13 do m[i] = tonumber(m[i]) or 0 / 0 end -- what compares with nothing
local n, others = ARGV[7] + 0, m[7]
local left = m[2] - m[3] - m[4] - n
if m[1] == '1' and left > 0 and m[6] > 0 and (others == 0 and m[4] == 0 or others > 0) then
  local id, claimant, ms, time = ARGV[5], ARGV[6], ARGV[8] + 0, redis.call('TIME')
  local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
  if now <= ARGV[3] + 0 and now >= m[9] and now < m[10] and m[11] > now and m[12] > 0 and (m[5] == 0 or redis.call('HLEN', KEYS[2]) == m[5])
      and redis.call('HLEN', KEYS[3]) == m[6] and (others == 0 or redis.call('ZCARD', KEYS[4]) == others
      and tonumber(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]) > now) then
    local ended = m[14] and redis.call('LINDEX', KEYS[7], 0)
    local is = redis.call('HMGET', KEYS[3], 'r:' .. id, 'u:' .. claimant)
    local has, one = (is[2] or 0) + n, m[5] > 0 and redis.call('HGET', KEYS[2], claimant)
    if not is[1] and not (ended and ended:match('^%d*') + 0 <= now) and has + (one and one:byte(1) ~= 48 and 1 or 0) <= m[8] then
      local text, f = string.format, '%.0f'
      local deadline = text(f, now + ms)
      local said = m[13] == 0 and {}
      if m[13] == 1 then
        local l = redis.call('HMGET', KEYS[1], 'serial', 'moved')
        local serial = (tonumber(l[1]) or 0 / 0) + 1
        local there = redis.call('XLEN', KEYS[6])
        if serial - 1 - (tonumber(l[2]) or 0 / 0) == there then -- see tell in stock.lua
          said = {'serial', text(f, serial)}
          redis.call('XADD', KEYS[6], said[2] .. '-0', 'k', 'held', 'e', text(f, m[12]), 'o', '0', 'n', ARGV[7], 'c', claimant, 'r', id,
            'at', text(f, time[1] * 1000000 + time[2]))
          if there == 0 then redis.call('PEXPIRE', KEYS[6], text(f, m[11] - now + 3600000)) end -- LATER, see ends.lua
        end
      end
      if said then
        redis.call('ZADD', KEYS[4], deadline, id)
        redis.call('HSET', KEYS[1], 'held', text(f, m[4] + n), 'requests', text(f, m[6] + (is[2] and 1 or 2)), 'holds', text(f, others + 1), unpack(said))
        redis.call('HSET', KEYS[3], 'r:' .. id, 'H;0;' .. ARGV[7] .. ';' .. ARGV[7] .. ';' .. ARGV[1] .. ';;' .. deadline .. ';' .. claimant,
          'u:' .. claimant, text(f, has))
        if others == 0 then redis.call('PEXPIRE', KEYS[4], text(f, m[11] - now + 3600000)) end -- LATER, see ends.lua
        return {0, m[12], left, now, 1, 0, n, n, ms}
      end
    end
  end
end
-- libraries
return flight()
