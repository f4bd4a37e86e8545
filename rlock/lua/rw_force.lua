-- Take a read-write lock from the holds named, this client's or not, and wake the waiters.
-- uses: owners, rw, clock
-- KEYS[1] the lock  KEYS[2] its ends  KEYS[3…] their timeout keys; the lock alone will do (a slot is being migrated)
-- ARGV[1] channel  ARGV[2] PUBLISH or SPUBLISH  ARGV[3] not used  ARGV[4…] fields
-- Reply: how many were removed
-- Twice: owners are never used again, so a second run removes no later owner.
local lock, ends, removed, writer = KEYS[1], KEYS[2], 0, false
for i = 4, #ARGV do
  if remove(lock, ARGV, i, i) > 0 then
    removed = removed + 1
    writer = writer or writes(ARGV[i])
  end
  if ends then
    redis.pcall('ZREM', ends, ARGV[i])
  end
end
for i = 3, #KEYS do
  redis.call('DEL', KEYS[i])
end
if removed > 0 then
  settle(lock, ends, writer)
  if ends and not emptied(lock) then
    trim(lock, ends, clock())
  end
end
redis.pcall(ARGV[2], ARGV[1], '1')
return removed
