-- How stocks and red packets end.
-- uses: clock
--
-- KEYS[1]  a hash, always small: the object. It ends with the retention, and says when: 'gone'
-- KEYS[2…] what may have a million records. It outlives the object by LATER

-- expire has the object end after so many ms, and the keys of its records LATER. A server frees a key that expires in one go, for
-- 400 ms where it has a million records, and serves nobody meanwhile. So only the small hash expires, and what is left
-- is unlinked, which frees it in the background: see remove. If nobody comes for that, it expires after all. KEYS[but] is
-- left as it is.
local LATER = 3600000
local function expire(ms, but)
  for i = 1, #KEYS do
    if i ~= but then redis.call('PEXPIRE', KEYS[i], digits(ms + (i == 1 and 0 or LATER))) end
  end
end

-- remove removes all keys.
local function remove() redis.call('UNLINK', unpack(KEYS)) end

-- stray is n, how many records are there of an object whose hash is not; but what is left of one whose retention is over is
-- none, and is removed. By what is left to live it is told from that of an object whose hash was lost, evicted or deleted:
-- that has more than LATER left. Users have something by it, so nothing may take its place. (100 ms are allowed for
-- between TIME and PEXPIRE in the script that gave the ends; a loss so shortly before the end is one that the end would
-- have made.) KEYS[but] is not looked at.
--
-- What takes an object's place, however late, and a removal are one script each, so what is removed here is never that of the
-- object just made: its hash is there. A replica promoted without the removal has the keys with the same ends, and removes
-- them likewise; if its clock is behind, it says that records are there until it has caught up. Keys whose end somebody took
-- off are those of an object that was lost.
local function stray(n, but)
  if n == 0 then return 0 end
  for i = 2, #KEYS do
    local ms = i ~= but and redis.call('PTTL', KEYS[i]) or 0
    if ms == -1 or ms > LATER + 100 then return n end
  end
  remove()
  return 0
end

