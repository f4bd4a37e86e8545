-- Changes what Open has set, or ends the sale.
-- uses: clock, ends, sale
--
-- KEYS     those of sale.lua
-- ARGV[1]  id of this call
-- ARGV[2]  the revision that this call means to change, '' to ask for it
-- ARGV[3]  the server's ms until which this call may act, 0 to ask
-- ARGV[4…] what, item, value: 'limit' and 'per' of an item; 'start' and 'end' in so many ms from now, the retention
--          after the end is as long as before; 'paused', '1' or '0'; 'ended', '1': for good
--
-- Replies  {0, revision, 1, ms, left}   it is so, by this call. ms is the server's time, left the ms to the removal of
--          all keys
--          {0, revision, 0, ms, left}   the revision asked for, or another than meant: nothing changed
--          {-1, said, found} {-6, 0, 0} {-10, 0, 0} {-13, said, found}   see begin in sale.lua
--          {-5, taken, 0}               more units of an item are sold and reserved than that: nothing changed
--          {-7, 0, 0}                   no such item: nothing changed
--          {-11, ms, 0}                 the call is too late: nothing changed
--          {-12, 0, 0}                  call again: reservations are over
--
-- Safe to run twice: the revision counts the changes, and the hash names the call that made the last one. A copy that
-- comes after another call's change changes nothing, and neither does one that meets another opening, whose revisions
-- begin at its epoch. A copy that comes after its caller's patience changes nothing: a late 'end' would move the end,
-- since it counts from when it runs.
--
-- The keys get their new end before the hash says so: if the run is broken off in between, they outlive what the hash
-- says, and the next call removes them. The flags go with every change, or a process would answer SoldOut while the
-- sale is paused or over.
local wrong = begin()
if wrong then return wrong end
mend_ends()
local m = redis.call('HMGET', s.sale, 'revision', 'changer')
local is = read_integer(m[1])
if not is then return {-1, -1, 0} end
if m[2] == ARGV[1] then return {0, is, 1, s.now, s.gone - s.now} end
if ARGV[2] ~= m[1] or ARGV[3] == '0' then return {0, is, 0, s.now, s.gone - s.now} end
if expired(ARGV[3], s.now) then return {-11, s.now, 0} end
if lapse_due(256) > 0 then
  if s.wrong then return {-1, -1, 0} end
  save()
  return {-12, 0, 0}
end
local v, gone = {}, s.gone
local function set(name, value) v[#v + 1], v[#v + 2] = name, value end
for i = 4, #ARGV, 3 do
  local what, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if what == 'limit' or what == 'per' then
    local t = item(name)
    if not t then return {-7, 0, 0} end
    if what == 'limit' and value + 0 < t.sold + t.reserved then return {-5, t.sold + t.reserved, 0} end
    set(what .. ':' .. name, value)
  elseif what == 'start' then
    set('start', digits(s.now + value))
  elseif what == 'end' then
    gone = s.now + value + s.gone - s.ending
    set('end', digits(s.now + value))
    set('gone', digits(gone))
  elseif s.state ~= 2 then
    set('state', what == 'ended' and 2 or value == '1' and 4 or 1)
  end
end
if s.wrong then return {-1, -1, 0} end
set('revision', digits(is + 1))
set('changer', ARGV[1])
redis.call('DEL', s.flags)
if gone ~= s.gone then expire(gone - s.now, 4) end
redis.call('HSET', s.sale, unpack(v))
return {0, is + 1, 1, s.now, gone - s.now}
