-- How sales and red packets end.
-- uses: clock
--
-- KEYS[1]  a hash, always small: the object. It expires with the retention; its field 'gone' is that instant
-- KEYS[2…] keys with up to a million records. They outlive the object by LATER

-- expire makes the object end after so many ms, and the keys of its records LATER. A server frees an expired key in one
-- step. For a million records that takes 400 ms, in which it serves no client. So only the small hash expires. The rest
-- is unlinked, which frees it in the background: see remove. If no client calls remove, the rest expires after all.
-- KEYS[except] keeps its expiry.
local LATER = 3600000
local function expire(ms, except)
  for i = 1, #KEYS do
    if i ~= except then redis.call('PEXPIRE', KEYS[i], digits(math.max(1, ms) + (i == 1 and 0 or LATER))) end
  end
end

-- remove removes all keys.
local function remove() redis.call('UNLINK', unpack(KEYS)) end

-- orphans returns n, the number of records of an object whose hash is missing. If the retention of the object is over,
-- the records are removed and orphans returns 0. Their TTL tells the two cases apart: if the hash was lost, evicted or
-- deleted, the records have more than LATER left. Users own units by these records, so no other object may take their
-- place. (100 ms may pass between TIME and PEXPIRE in the script that set the expiries. A hash that is lost so shortly
-- before its end would have ended anyway.) KEYS[except] is not read.
--
-- A new object is made by one script, and its records are removed by one script. So a removal never takes the records
-- of an object just made, because the hash of that object exists. A replica that was promoted before it received the
-- removal has the keys with the same expiries, and removes them in the same way. If its clock is behind, it reports the
-- records until the clock has caught up. Keys without an expiry count as the keys of a lost object.
local function orphans(n, except)
  if n == 0 then return 0 end
  for i = 2, #KEYS do
    local ms = i ~= except and redis.call('PTTL', KEYS[i]) or 0
    if ms == -1 or ms > LATER + 100 then return n end
  end
  remove()
  return 0
end

