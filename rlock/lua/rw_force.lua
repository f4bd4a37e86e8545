-- Remove the named holds from a read-write lock, of any client, and wake the waiters.
-- uses: owners, rw, rwqueue, queue, clock, send
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3] its queue  KEYS[4…] their timeout keys; the lock alone (a slot is being
--   migrated) does
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] grant channels, without the connection id  ARGV[4…] fields
-- Reply: the number of removed holds. It is negative if the caller should also read the ends of Redisson's readers that
--   are left: see rw_trim.lua
-- Twice: owners are never used again, so a second run removes no later owner.
local lock, ends, queue, removed, writer, has_unknown_ends = KEYS[1], KEYS[2], KEYS[3], 0, false, false
for i = 4, #ARGV do
  if remove_owners(lock, ARGV, i, i) > 0 then
    removed = removed + 1
    writer = writer or is_writer_field(ARGV[i])
  end
  if ends then
    redis.pcall('ZREM', ends, ARGV[i])
  end
end
for i = 4, #KEYS do
  redis.call('DEL', KEYS[i])
end
local now, us = clock()
if removed > 0 then
  settle_removal(lock, ends, writer)
  if ends and not is_missing(lock) then
    local _
    _, has_unknown_ends = trim(lock, ends, now)
  end
end
if ends then
  serve_queue(lock, ends, queue_of(queue, ARGV[2], ARGV[3], now, us), ARGV[1])
end
send(ARGV[2], ARGV[1], '1')
return has_unknown_ends and -removed or removed
