-- Set the expiry of a read-write lock with readers of Redisson's to the end of its last hold; if no hold is left, serve
-- the queue.
-- uses: rw, rwqueue, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4…] for each of these readers: the keys of its ends
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id
-- ARGV[4…] for each of these readers: its field, its count in the hash, and the number of its keys
-- Reply: 1 done; 0 nothing is done: the hash has other readers, or other counts
-- Twice: the second run finds the expiry that the first has set, or a later state of the lock. trim reads the state at
--   that time.
local lock, ends, queue, known, at = KEYS[1], KEYS[2], KEYS[3], {}, 4
for i = 4, #ARGV, 3 do
  known[ARGV[i]] = {count = ARGV[i + 1], first = at, last = at + ARGV[i + 2] - 1}
  at = at + ARGV[i + 2]
end
local now, us = clock()
local is_free, has_unknown_ends = trim(lock, ends, now, known)
if is_free and serve_queue(lock, ends, queue_of(queue, ARGV[2], ARGV[3], now, us), ARGV[1], true) then
  send(ARGV[2], ARGV[1], '0')
end
return has_unknown_ends and 0 or 1
