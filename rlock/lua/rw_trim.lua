-- Give a read-write lock, in which there are readers of Redisson's, the end of the last of its holds; if none is left, serve the line.
-- uses: rw, rwqueue, clock, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4…] of each of these readers the keys of its ends
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id
-- ARGV[4…] of each of these readers: its field, its count in the hash, and how many keys it has
-- Reply: 1 done; 0 other readers are in, or with other counts: nothing is done
-- Twice: the second run finds the end that the first has set, or a lock that has come since: see trim, which looks at what there is then.
local lock, ends, queue, known, at = KEYS[1], KEYS[2], KEYS[3], {}, 4
for i = 4, #ARGV, 3 do
  known[ARGV[i]] = {count = ARGV[i + 1], first = at, last = at + ARGV[i + 2] - 1}
  at = at + ARGV[i + 2]
end
local now, us = clock()
local free, look = trim(lock, ends, now, known)
if free and pass_on(lock, ends, queue, ARGV[2], ARGV[1], ARGV[3], now, us, true) then
  send(ARGV[2], ARGV[1], '0')
end
return look and 0 or 1
