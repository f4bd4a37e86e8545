-- Does something to orders by their ids: for one caller, or for all callers of a process that share a call.
-- uses: acts, sale
--
-- KEYS     those of sale.lua
-- ARGV[1]  '1' to write something even if nothing is decided: see decide in acts.lua
-- ARGV[2]  the server's ms until which this call may act, 0 to ask for the server's time
-- ARGV[3…] the acts, 1 to 128, each with an id that no other act of the call has. last is the server's ms until which
--          the act may run, since its caller has given up then:
--          'B', id, last, user, lines       buy: sell at once. lines: 'item,n|item,n', with '+' if fewer will do
--          'R', id, last, user, lines, ms   reserve for so long
--          'E', id, last, ms                extend: reserve for so long from now
--          'P', id, last, paid, forbids     pay: paid are the lines that were paid for, '' for all
--          'C', id, last, forbids           cancel
--          'G', id, last, keep, forbids     give back: keep are the units of each line that stay, '' for none
--          'A', id, last, ordinal, n        give back a range of the units of an order of Anyone
--          'S', id, last                    status: nothing
--          forbids is '1' if an id that the sale does not know is closed, and '0' to hear that it does not
--
-- Replies  {0, epoch, ms, code, text, again, code, text, again …}   ms is the server's time; three for each act. again
--          is 0 if this run changed the order. Codes:
--            0   text is the record of the order as it is, see parse in sale.lua; '': the sale knows none
--            3, 7   refused: sold out, the user's limit. text is what is left of each line: 'n,n'
--            6   refused: the sale has ended
--            5, 12  not yet: it has not started (text is in how many ms it does), it is paused. Nothing was changed
--            -2  the ordinals are used up
--            -3  the id has other lines or another user, or what was paid for is not of the order
--            -7  no such item   -9 the sale does not know the id: nothing was changed
--            -11 the act came too late   -12 call again: reservations are over
--          {-1, said, found}    records are missing, or numbers that cannot be: nothing done
--          {-6, 0, 0}           no sale
--          {-10, 0, 0}          the sale is suspended: nothing done
--          {-11, ms, 0}         the server's time was asked for, or the call is too late: nothing done
--          {-13, said, found}   entries of the ledger are missing: nothing done
--
-- Safe to run twice: the record is the answer, and the second run finds it. What was refused is not recorded; the
-- second run may grant it, and the order is still wanted. No id is twice in a call, or the second run would answer the
-- first act by what the second did.
--
-- Safe however late: a copy that comes after the time that it names does nothing. So it cannot meet an id that was
-- forgotten.
--
-- What comes first does in a straight line the common case: to buy and to reserve by new orders of one line of the item
-- '', and to pay and cancel such orders while they are reserved, in a sale that is open, lacks nothing, has more units
-- than are wanted, and in which no reservation is over. It writes the same as save in sale.lua, and in that order, but
-- counts entries at once: each act makes or removes a record or a reservation. Before it has written it can leave all
-- to the rest.
repeat
  local text, f, number, ask = string.format, '%.0f', tonumber, ARGV
  local m = redis.call('HMGET', KEYS[1], 'state', 'start', 'end', 'epoch', 'fields', 'reservations', 'own', 'counted',
    'ledger', 'limit:', 'sold:', 'reserved:', 'seq:', 'per:', 'gone', 'remember', 'serial', 'moved')
  if m[1] ~= '1' then break end
  local none = 0 / 0 -- compares with nothing
  for i = 2, 18 do m[i] = number(m[i]) or none end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
  local many, at, wants, news, fields, places, seen = 0, 3, 0, 0, {}, {}, {}
  local own, count_fields, has_own_name, has_other_id = m[7], {}, false, false
  while ask[at] do
    local verb, id = ask[at], ask[at + 1]
    many = many + 1
    fields[many], places[many] = id, at
    if seen[id] or not (now <= ask[at + 2] + 0) then wants = none end
    seen[id] = true
    if verb == 'B' or verb == 'R' then
      local n, user = string.match(ask[at + 4], '^%+?,(%d+)$'), ask[at + 3]
      wants, news = wants + (n or none), news + 1
      count_fields[news] = user ~= '' and '\0,' .. user or '\0'
      if user == id then has_own_name = true elseif user ~= '' then has_other_id = true end
      at = at + (verb == 'B' and 5 or 6)
    elseif verb == 'P' and ask[at + 3] == '' then
      at = at + 5
    elseif verb == 'C' then
      at = at + 4
    else
      wants = none
      break
    end
  end
  -- A user may have an order of its own name, which is in no count: allowed in sale.lua looks at both.
  if has_other_id and (own == 1 or has_own_name) then break end
  local sold, reserved, seq, recorded, waiting = m[11], m[12], m[13], m[5], m[6]
  local before = m[10] - sold - reserved
  if not (now <= ask[2] + 0 and now <= m[15] and sold >= 0 and reserved >= 0 and sold <= seq and m[14] >= 1
      and m[4] > 0 and m[16] >= 0
      and (wants == 0 and before >= 0 or wants > 0 and before > wants and now >= m[2] and now < m[3])
      and redis.call('HLEN', KEYS[2]) == recorded and redis.call('ZCARD', KEYS[3]) == waiting
      and (waiting == 0 or redis.call('ZCOUNT', KEYS[3], '-inf', text('(%.0f', now)) == 0)) then break end
  local serial, found_entries = 0, 0
  if m[9] ~= 0 then
    serial, found_entries = m[17], redis.call('XLEN', KEYS[5])
    if serial - m[18] ~= found_entries then break end
  end
  local due = redis.call('LINDEX', KEYS[6], 0)
  if due and due:match('^%d*') + 0 < now then break end

  for i = 1, news do fields[many + i] = count_fields[i] end
  local found, totals = redis.call('HMGET', KEYS[2], unpack(fields)), {}
  local out, k, new, set, sets, reserve, reserves, unreserve, unreserves = {0, m[4], now}, 3, 0, {}, 0, {}, 0, {}, 0
  local ended, entries, free, decided, ms, deadline = {}, {}, 0, true, nil, nil
  for i = 1, many do
    local p, record = places[i], found[i]
    local verb, id, code, answer = ask[p], ask[p + 1], 0, nil
    if verb == 'P' or verb == 'C' then
      local is, asked, units, user = string.match(record or '', '^R(%d+);,(%d+),(%d+),0;(.*)$')
      if not is or units + 0 > reserved or units == '0' then decided = false break end
      reserved, waiting, unreserves = reserved - units, waiting - 1, unreserves + 1
      unreserve[unreserves] = id
      if verb == 'P' then
        local ordinal = text(f, seq + 1)
        sold, seq = sold + units, seq + units
        answer = id == user and asked == '1' and units == '1' and ordinal
          or 'S;,' .. asked .. ',' .. units .. ',' .. ordinal .. ';' .. user
        entries[i] = {'paid', units, ordinal, user, asked, '0'}
      else
        if user ~= '' and user ~= id then
          local field = '\0,' .. user
          totals[field] = (totals[field] or redis.call('HGET', KEYS[2], field) or none) - units
          if not (totals[field] >= 0) then decided = false break end
        end
        answer, free = 'C;,' .. asked .. ',' .. units .. ',0;' .. user, free + units
        ended[#ended + 1] = id
        entries[i] = {'cancelled', units, '0', user, asked, '0'}
      end
    else
      new = new + 1
      if record then decided = false break end
      local user, units, field, has = ask[p + 3], string.match(ask[p + 4], '%d+'), count_fields[new], 0
      if field ~= '\0' then has = totals[field] or found[many + new] or false end
      if user ~= '' and units + 0 > m[14] - (has or 0) then
        if ask[p + 4]:byte(1) == 43 then decided = false break end -- '+': fewer will do
        code, answer = 7, text(f, m[10] - sold - reserved - free)
      else
        if user == id then
          own = 1
        elseif field ~= '\0' then
          if has then totals[field] = has + units else recorded, totals[field] = recorded + 1, units end
        end
        recorded = recorded + 1
        if verb == 'R' then
          if ask[p + 5] ~= ms then
            ms = ask[p + 5]
            deadline = text(f, now + ms)
          end
          reserved, waiting = reserved + units, waiting + 1
          reserve[reserves + 1], reserve[reserves + 2], reserves = deadline, id, reserves + 2
          answer = 'R' .. deadline .. ';,' .. units .. ',' .. units .. ',0;' .. user
          entries[i] = {'reserved', units, '0', user, units, deadline}
        else
          local ordinal = text(f, seq + 1)
          sold, seq = sold + units, seq + units
          answer = id == user and units == '1' and ordinal
            or 'S;,' .. units .. ',' .. units .. ',' .. ordinal .. ';' .. user
          entries[i] = {'sold', units, ordinal, user, units, '0'}
        end
      end
    end
    if code == 0 then set[sets + 1], set[sets + 2], sets = id, answer, sets + 2 end
    out[k + 1], out[k + 2], out[k + 3], k = code, answer, code == 0 and 0 or 1, k + 3
  end
  if not decided or seq > 9007199254740991 then break end
  if sets == 0 then return out end

  local gone, v = {}, {'fields', 0, 'reservations', text(f, waiting), 'reserved:', 0}
  for field, n in pairs(totals) do
    if n == 0 then
      gone[#gone + 1] = field
    else
      set[sets + 1], set[sets + 2], sets = field, type(n) == 'string' and n or text(f, n), sets + 2
    end
  end
  v[2], v[6] = text(f, recorded - #gone), text(f, reserved + free)
  if seq ~= m[13] then v[7], v[8], v[9], v[10] = 'sold:', text(f, sold), 'seq:', text(f, seq) end
  if own ~= m[7] then v[#v + 1], v[#v + 2] = 'own', '1' end
  if m[8] == 0 and next(totals) then v[#v + 1], v[#v + 2] = 'counted', '1' end
  local lasting = text(f, m[15] - now + 3600000) -- LATER, see ends.lua
  if free > 0 then redis.call('HDEL', KEYS[4], '') end
  if m[9] ~= 0 then
    local epoch, micros = text(f, m[4]), text(f, time[1] * 1000000 + time[2])
    for i = 1, many do
      local e = entries[i]
      if e then
        serial = serial + 1
        redis.call('XADD', KEYS[5], text(f, serial) .. '-0', 'k', e[1], 'd', ask[places[i] + 1], 'u', e[4], 'i', '',
          'a', e[5], 'n', e[2], 'o', e[3], 't', e[6], 'w', '', 'at', micros, 'e', epoch)
      end
    end
    v[#v + 1], v[#v + 2] = 'serial', text(f, serial)
  end
  local endings = 0
  if #ended > 0 then
    local last = text(f, now + m[16]) .. ';C;'
    for i = 1, #ended do ended[i] = last .. ended[i] end
    endings = redis.call('RPUSH', KEYS[6], unpack(ended))
  end
  redis.call('HSET', KEYS[1], unpack(v))
  redis.call('HSET', KEYS[2], unpack(set))
  if #gone > 0 then redis.call('HDEL', KEYS[2], unpack(gone)) end
  if reserves > 0 then redis.call('ZADD', KEYS[3], unpack(reserve)) end
  if unreserves > 0 then redis.call('ZREM', KEYS[3], unpack(unreserve)) end
  if free > 0 then redis.call('HSET', KEYS[1], 'reserved:', text(f, reserved)) end
  if m[5] == 0 then redis.call('PEXPIRE', KEYS[2], lasting) end
  if m[6] == 0 and reserves > 0 then redis.call('PEXPIRE', KEYS[3], lasting) end
  if m[9] ~= 0 and found_entries == 0 then redis.call('PEXPIRE', KEYS[5], lasting) end
  if endings > 0 and endings == #ended then redis.call('PEXPIRE', KEYS[6], lasting) end
  return out
until true
-- libraries
return decide(ARGV)
