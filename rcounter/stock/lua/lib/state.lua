-- The state of a stock, and how it is written.
-- uses: clock, ends, ledger
--
-- s is the state of the stock: its keys, then what begin reads of its hash and what the script makes of that. stored is what of it the
-- hash has, by what count knows it; lines are the entries of the ledger that append_ledger is to write. claimants, fields, members and entries are how
-- many there were in the keys of claimants, records, holds and the ledger: end_write gives a key that was made since its end.
local s = {stock = KEYS[1], users = KEYS[2], records = KEYS[3], holds = KEYS[4], flag = KEYS[5], ledger = KEYS[6], endings = KEYS[7],
  limit = false, sold = false, held = false, seq = false, recorded = false, requests = false, waiting = false, per = false, start = false,
  ending = false, gone = false, epoch = false, state = false, keeps = false, remember = false, now = false, micros = false,
  serial = 0, moved = 0, lines = {}, stored = false, claimants = 0, fields = 0, members = 0, entries = 0}

-- refusal is the outcome of a claimant that has nothing yet, or nil while the stock sells.
local function refusal()
  if s.state == 3 or s.state == 7 then return 8 end
  if s.state ~= 1 and s.state ~= 6 or begun(s.ending, s.now) then return 6 end
  if s.state == 6 then return 12 end
  if not begun(s.start, s.now) then return 5 end
end

-- is_suspended is whether the stock is suspended, open, closed or paused: its ordinals may have been given out by what was lost.
local function is_suspended() return s.state == 3 or s.state == 5 or s.state == 7 end

-- log_entry notes a line of the ledger, to be written by append_ledger. Its kind: 'held', 'expired', 'cancelled' and 'extended' are n units of a
-- reservation, without an ordinal ('0'); 'grant', and 'late' after the reservation was over: they are sold; 'return': they came back;
-- 'nothing': it is decided that the id gets none, neither of the n units that were held, nor of any if n is '0'.
local function log_entry(kind, ordinal, n, claimant, request)
  if s.keeps == 1 then s.lines[#s.lines + 1] = {'k', kind, 'e', digits(s.epoch), 'o', ordinal, 'n', n, 'c', claimant, 'r', request, 'at', digits(s.micros)} end
end

-- append_ledger writes the lines that were noted, before all else that a script writes: it is called before the first write, and by count.
-- The hash counts them with the first numbers that are written after them. So if the server refuses the lines (the user may not
-- XADD), nothing has happened, and the call can be made again. If a run is broken off after the lines, the stream has more entries
-- than the hash says, and every next call, the second run too, refuses: the entries tell of something that has not happened, or not
-- all of it. If the hash came first: the server is stopped between the two, a unit is sold of which no entry tells, and the second
-- run finds its record and answers as if all were well (TestScripts_BrokenOff_SellTooLittleAtWorst).
local function append_ledger()
  if #s.lines > 0 then s.serial, s.lines = append(s.ledger, s.serial, s.lines), {} end
end

-- count writes those numbers that the hash does not have yet: before the records of new sales, and after those of returns. A run that
-- is broken off between the two then sells too little, and the next call says so. It never sells too much.
local function count()
  append_ledger()
  local stored, new, n, last, text = s.stored, {}, 0, nil, nil
  for name, was in pairs(stored) do
    local is = s[name]
    if is ~= was then
      if is ~= last then last, text = is, digits(is) end -- to write a number takes as long as a command
      stored[name], new[n + 1], new[n + 2], n = is, name == 'waiting' and 'holds' or name, text, n + 2
    end
  end
  if n > 0 then redis.call('HSET', s.stock, unpack(new)) end
end

-- free comes before all else that a script writes to give units back. A server whose memory is full takes this write, and then those
-- that follow it in the script: it refuses only a script's first write, and only if that may take memory. Otherwise one hold that is over
-- would keep a winner from the answer that it has (TestStock_ServerFull_AnswersWinnersAndTakesBack). The flag may always be missing.
local function free() redis.call('DEL', s.flag) end

-- outlive gives a key that the script has made the end that all have but the stock and the flag.
local function outlive(key) redis.call('PEXPIRE', key, digits(s.gone - s.now + LATER)) end

-- note_endings notes when the records of these 'state;id', which end now, may be forgotten. It comes before their records are written: an
-- entry whose record has not ended so does nothing. A reservation expires, is confirmed late, and is returned: the entry of its
-- first end must not have it forgotten sooner after its second one.
local function note_endings(which)
  if not s.remember or #which == 0 then return end
  local last, entries = digits(s.now + s.remember) .. ';', {}
  for i = 1, #which do entries[i] = last .. which[i] end
  if redis.call('RPUSH', s.endings, unpack(entries)) == #which then outlive(s.endings) end
end

-- parse reads the record of a request or reservation; nil if it is none. Its numbers stay text: to write a number costs more than all
-- else that is done with it.
local function parse(record)
  local is, ordinal, n, asked, call, by, deadline, claimant = string.match(record, '^(%u);(%d+);(%d+);(%d+);([^;]*);([^;]*);(%d+);(.*)$')
  if not is then return nil end
  return {state = is, ordinal = ordinal, n = n, asked = asked, call = call, by = by, deadline = deadline, claimant = claimant}
end

-- written is the record of a request or reservation.
local function written(r)
  return r.state .. ';' .. r.ordinal .. ';' .. r.n .. ';' .. r.asked .. ';' .. r.call .. ';' .. r.by .. ';' .. r.deadline .. ';' .. r.claimant
end
