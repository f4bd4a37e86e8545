-- Look at a latch.
-- KEYS[1] the count  KEYS[2] our record (see latch_set.lua)  KEYS[3] the permits of a Semaphore of that name (see
--   kind.lua)
-- ARGV[1] the mark in the reply to the caller's last look; '-' for a first look  ARGV[2] how long the record is kept,
--   ms
-- Reply {status, count, ms, mark, opens}. status:
--   0  open
--   1  closed; ms left of its TTL (-1: none), and the message that will report its opening, '' if it is not known
--   3  the key holds no integer
--   4  expired
--   The other states report the end of the latch that was closed at the caller's last look, whatever the latch is now:
--   5 deleted; 6 opened; 7 expired; 8 over, and it is not known how
-- Twice: the writes record that another program has opened the latch, and keep the record of a latch without a TTL
--   while it has waiters. A second run finds both done.
-- uses: integer, kind, record
local key, record, permits, last, keep = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local held = redis.call('HMGET', record, 'gen', 'until', 'deleted', 'set', 'before', 'gone', 'opens')
local gen, ends_at, deleted, set, before, gone = held[1], held[2], held[3] or '', held[4] or '', held[5], held[6] or ''
local mark, opens = deleted .. ' ' .. set, held[7] or ''
local since, mine = '', ''
if last ~= '-' then
  since, mine = string.match(last, '^(%S*) (%S*)$')
  local another = set ~= '' and set ~= mine
  -- The caller's latch was deleted, unless the record shows that it was over before the deletion.
  if deleted ~= '' and deleted ~= since and not (another and gone ~= '' and gone ~= mine) then
    return {5, 0, 0, mark, ''}
  end
  if another then -- a latch is only set when no latch exists
    if before == 'open ' .. mine then
      return {6, 0, 0, mark, ''}
    end
    if before == 'expired ' .. mine then
      return {7, 0, 0, mark, ''}
    end
    return {8, 0, 0, mark, ''}
  end
end
local value = redis.call('GET', key)
refuse_all_but_latch(key, permits, value, ends_at)
if value then
  if not is_integer(value) then
    return {3, 0, 0, mark, ''}
  end
  local count, left = tonumber(value), redis.call('PTTL', key)
  if left == -1 and ends_at and ends_at ~= '0' then
    -- The latch that was set with a TTL is gone. A program that does not know the record has set this latch.
    close_record(record, gen)
    opens = ''
  end
  if count > 0 then
    if opens ~= '' and redis.call('PTTL', record) < keep / 2 then
      redis.call('PEXPIRE', record, keep)
    end
    return {1, count, left, mark, opens}
  end
  return {0, 0, 0, mark, ''}
end
if ends_at then
  if has_run_out(ends_at) then
    return {4, 0, 0, mark, ''}
  end
  -- The latch ended before its TTL: a program that does not know the record has counted it down. The record is closed,
  -- because otherwise the latch would count as expired later.
  close_record(record, gen)
elseif mine ~= '' and not gen then -- the latch ended so long ago that its record has expired
  return {8, 0, 0, mark, ''}
end
return {0, 0, 0, mark, ''}
