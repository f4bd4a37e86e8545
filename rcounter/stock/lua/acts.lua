-- Acts on requests and reservations, one or several.
-- uses: acts
--
-- KEYS, ARGV
-- Replies  see acts.lua in lib
--
-- Safe to run twice: see there. What comes first does in a straight line what acts.lua in lib does, for reservations, requests,
-- confirmations and cancellations, if nothing is out of the ordinary: the stock is open, no record is missing, no hold is over,
-- nothing is to be forgotten, the ids of reservations and requests are new and more units are left than these want, and what is
-- confirmed or cancelled is held. Before it has written anything it can leave everything to acts.lua. It writes in the same order, so
-- what is said there of runs that are broken off holds here too (TestActs_StraightLine_DoesWhatTheRestDoes compares the two). For
-- one act it costs the server three quarters of what the rest does, and for each of several two thirds. The rest makes some 40 functions
-- in a run, keeps its numbers in a table and decides by a function for each kind of act.
repeat
  local ask, text, f = ARGV, string.format, '%.0f'
  local m, number = redis.call('HMGET', KEYS[1], 'state', 'limit', 'sold', 'held', 'seq', 'recorded', 'requests', 'holds', 'per', 'gone', 'epoch', 'ledger', 'start',
    'end', 'remember'), tonumber
  if m[1] ~= '1' then break end
  for i = 2, 14 do m[i] = number(m[i]) or 0 / 0 end -- what compares with nothing
  local sold, held, seq, requests, waiting, time = m[3], m[4], m[5], m[7], m[8], redis.call('TIME')
  local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000

  local places, fields, whose, seen, many, new, at, wants = {}, {}, {}, {}, 0, 0, 4, 0
  while ask[at] do
    local verb, id = ask[at], ask[at + 1]
    many, fields[many + 1], places[many + 1] = many + 1, 'r:' .. id, at
    if not (now <= ask[at + 2] + 0) then wants = 0 / 0 end -- too late: the rest answers it
    if verb == 'C' or verb == 'X' then
      if verb == 'C' and ask[at + 3] ~= '0' then wants = 0 / 0 end
      at = at + (verb == 'C' and 4 or 3)
    elseif verb == 'R' or verb == 'O' or verb == 'V' or verb == 'U' then
      wants, new, whose[new + 1] = wants + ask[at + 4], new + 1, ask[at + 3]
      at = at + ((verb == 'R' or verb == 'V') and 6 or 5)
    else
      wants = 0 / 0
      break
    end
    if seen[id] then wants = 0 / 0 end
    seen[id] = true
  end
  local before = m[2] - sold - held
  if not (now <= ask[3] + 0 and now <= m[10] and m[11] > 0 and sold >= 0 and held >= 0 and sold <= seq and m[9] >= 1 and requests > 0
      and (wants > 0 and before > wants and now >= m[13] and now < m[14] or wants == 0 and before >= 0)
      and (m[6] == 0 or redis.call('HLEN', KEYS[2]) == m[6]) and redis.call('HLEN', KEYS[3]) == requests and redis.call('ZCARD', KEYS[4]) == waiting
      and (waiting == 0 or redis.call('ZCOUNT', KEYS[4], '-inf', text('(%.0f', now)) == 0)) then break end
  local serial, there = 0, 0
  if m[12] ~= 0 then
    local l = redis.call('HMGET', KEYS[1], 'serial', 'moved')
    serial, there = number(l[1]) or 0 / 0, redis.call('XLEN', KEYS[6])
    if m[12] ~= 1 or serial - (number(l[2]) or 0 / 0) ~= there then break end
  end
  local due = m[15] and redis.call('LINDEX', KEYS[7], 0)
  if due and due:match('^%d*') + 0 < now then break end

  for i = 1, new do fields[many + i] = 'u:' .. whose[i] end
  local found, single, totals = redis.call('HMGET', KEYS[3], unpack(fields)), m[6] > 0 and new > 0 and redis.call('HMGET', KEYS[2], unpack(whose)), {}
  local out, k, j, set, hold, unhold, over, lines = {0, m[11], 0, now}, 4, 0, {}, {}, {}, {}, {}
  local back, sets, holds, unholds, keeps, sells, ms, deadline = 0, 0, 0, 0, m[12] == 1
  for i = 1, many do
    local at, r = places[i], found[i]
    local verb, id = ask[at], ask[at + 1]
    local a, b, c, d, e
    if verb == 'C' or verb == 'X' then
      local n, asked, made, term, claimant = string.match(r or '', '^H;0;(%d+);(%d+);([^;]*;)[^;]*;(%d+);(.*)$')
      if not n or n + 0 > held then break end
      held, waiting = held - n, waiting - 1
      unholds, unhold[unholds + 1] = unholds + 1, id
      if verb == 'C' then
        if seq > 9007199254740991 - n then break end
        local ordinal = text(f, seq + 1)
        a, b, c, d, e = 1, seq + 1, n + 0, n + 0, 0
        sold, seq, sells = sold + n, seq + n, true
        r = 'G;' .. ordinal .. ';' .. n .. ';' .. asked .. ';' .. made .. ask[1] .. ';' .. term .. ';' .. claimant
        if keeps then lines[i] = {'grant', ordinal, n, claimant} end
      else
        local is = (totals[claimant] or redis.call('HGET', KEYS[3], 'u:' .. claimant) or 0) - n
        if is < 0 then break end
        a, b, c, d, e = 0, n + 0, 0, 0, 0
        totals[claimant], back = text(f, is), back + n
        over[#over + 1] = id
        r = 'C;0;' .. n .. ';' .. asked .. ';' .. made .. ask[1] .. ';' .. term .. ';' .. claimant
        if keeps then lines[i] = {'cancelled', '0', n, claimant} end
      end
    else
      if r then break end
      local claimant, n = ask[at + 3], ask[at + 4]
      j = j + 1
      local has = totals[claimant] or found[many + j]
      local may = m[9] - (has or 0) - (single and single[j] and single[j]:byte(1) ~= 48 and 1 or 0)
      if n + 0 <= may then
        totals[claimant] = has and text(f, has + n) or n
        requests = requests + (has and 1 or 2)
        if verb == 'R' or verb == 'V' then
          if ask[at + 5] ~= ms then
            ms = ask[at + 5]
            deadline = text(f, now + ms)
          end
          a, b, c, d, e = 1, 0, n + 0, n + 0, ms + 0
          held, waiting = held + n, waiting + 1
          hold[holds + 1], hold[holds + 2], holds = deadline, id, holds + 2
          r = 'H;0;' .. n .. ';' .. n .. ';' .. ask[1] .. ';;' .. deadline .. ';' .. claimant
          if keeps then lines[i] = {'held', '0', n, claimant} end
        else
          if seq > 9007199254740991 - n then break end
          local ordinal = text(f, seq + 1)
          a, b, c, d, e = 1, seq + 1, n + 0, n + 0, 0
          sold, seq, sells = sold + n, seq + n, true
          r = 'G;' .. ordinal .. ';' .. n .. ';' .. n .. ';' .. ask[1] .. ';;0;' .. claimant
          if keeps then lines[i] = {'grant', ordinal, n, claimant} end
        end
      elseif verb == 'R' or verb == 'O' or may <= 0 then
        a, b, c, d, e = 7, 0, 0, 0, 0
      else
        break -- fewer will do
      end
    end
    if r then set[sets + 1], set[sets + 2], sets = fields[i], r, sets + 2 end
    out[k + 1], out[k + 2], out[k + 3], out[k + 4], out[k + 5], k = a, b, c, d, e, k + 5
  end
  if k < 4 + 5 * many then break end
  out[3] = m[2] - sold - held
  if sets == 0 then return out end

  local none, also = {}, {}
  for claimant, n in pairs(totals) do
    if n == '0' then
      none[#none + 1] = 'u:' .. claimant
    else
      set[sets + 1], set[sets + 2], sets = 'u:' .. claimant, n, sets + 2
    end
  end
  requests = text(f, requests - #none)
  if sells then also = {'sold', text(f, sold), 'seq', text(f, seq)} end
  if back > 0 then redis.call('DEL', KEYS[5]) end -- the flag, and before all else: see free in stock.lua
  if keeps then -- see append_ledger in state.lua
    local epoch, micros = text(f, m[11]), text(f, time[1] * 1000000 + time[2])
    for i = 1, many do
      local l = lines[i]
      if l then
        serial = serial + 1
        redis.call('XADD', KEYS[6], text(f, serial) .. '-0', 'k', l[1], 'e', epoch, 'o', l[2], 'n', l[3], 'c', l[4], 'r', ask[places[i] + 1], 'at', micros)
      end
    end
    if there == 0 then redis.call('PEXPIRE', KEYS[6], text(f, m[10] - now + 3600000)) end -- LATER, see ends.lua
    also[#also + 1], also[#also + 2] = 'serial', text(f, serial)
  end
  if m[15] and #over > 0 then -- see note_endings in state.lua
    local last = text(f, now + m[15]) .. ';C;'
    for i = 1, #over do over[i] = last .. over[i] end
    if redis.call('RPUSH', KEYS[7], unpack(over)) == #over then redis.call('PEXPIRE', KEYS[7], text(f, m[10] - now + 3600000)) end
  end
  local goes = sells or holds > 0
  if goes then
    redis.call('HSET', KEYS[1], 'held', text(f, held + back), 'requests', requests, 'holds', text(f, waiting), unpack(also))
  end
  redis.call('HSET', KEYS[3], unpack(set))
  if #none > 0 then redis.call('HDEL', KEYS[3], unpack(none)) end
  if holds > 0 then
    redis.call('ZADD', KEYS[4], unpack(hold)) -- before ZREM: see save
    if m[8] == 0 then redis.call('PEXPIRE', KEYS[4], text(f, m[10] - now + 3600000)) end
  end
  if unholds > 0 then redis.call('ZREM', KEYS[4], unpack(unhold)) end
  if back > 0 then redis.call('HSET', KEYS[1], 'held', text(f, held), 'requests', requests, 'holds', text(f, waiting), unpack(also)) end
  return out
until true
-- libraries
local out = decide()
if out[1] == 0 then conclude() end
return out
