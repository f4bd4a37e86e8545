-- A step of Restore.
-- uses: clock, ends, integer
--
-- KEYS     those of sale.lua, and then what is made anew: [7] orders, [8] reservations, [9] endings
-- ARGV[1]  the step   [2] the id of the round
--          'suspend'  the sale does nothing from here on, and a round before is over. [3] the round before, as it was
--                     read; [4] the server's ms until which this call may act, 0 to ask; [5…] the fields of the hash,
--                     if there is none, or only one that a round before has made, perhaps by another Spec
--          'put'      [3] 'orders' or 'reservations', [4…] (field, value) or (score, member); or 'endings', [4] how
--                     many there are before, [5…] entries. At most 1000 arguments
--          'resume'   [3] how many fields of orders, [4] reservations, [5] endings; [6…] fields of the hash
--
-- Replies  {0, epoch, us}      done. epoch is that of the hash, us the server's time
--          {-1, said, found}   'resume': another number is there, so something was lost meanwhile: nothing changed
--          {-6, 0, 0}          'suspend': there is no hash, and no fields for it. The other steps: the hash was lost
--          {-10, 0, 0}         another round goes on, or 'suspend' names another round than that before: nothing
--                              changed
--          {-11, ms, 0, round}   'suspend' came too late, or only asked for the round before: nothing changed
--
-- Safe to run twice: a step writes values and not differences, and is refused unless its round is the last that began:
--
--   this Restore              its late copies                      another Restore
--   suspend 1
--                             suspend 1: the round is 1, done before
--   put 1, …                                                       suspend 2, names round 1; takes away what 1 has put
--   put 1: refused            put 1, resume 1: refused
--                             suspend 1, names the round before 1: refused
--                                                                  put 2, …, resume 2: the sale sells
--                             suspend 1: refused. Otherwise it would stop a sale that sells
--
-- RPUSH is no value, so a put of endings names how many are there. What is put has a TTL of a day, in case that nobody
-- goes on.
--
-- 'resume' unlinks the old tables before RENAME, which would free them on the spot.
local step, round = ARGV[1], ARGV[2]
local is = redis.call('HMGET', KEYS[1], 'state', 'before', 'round', 'epoch', 'gone')
refuse_newer(is[1])
local epoch = is[5] and require_integer(is[4], 'epoch') or 0 -- without 'gone' the hash is made anew, whatever it has
local now, micros = clock()
local DAY = 86400000
local function set_fields(first)
  for i = first, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
if step == 'suspend' then
  if is[3] ~= round then
    if expired(ARGV[4], now) then return {-11, now, 0, is[3] or ''} end
    if (is[3] or '') ~= ARGV[3] then return {-10, 0, 0} end
    if not is[5] or is[4] == '0' then
      if not ARGV[5] then return {-6, 0, 0} end
      redis.call('DEL', KEYS[1])
      set_fields(5)
      redis.call('PEXPIRE', KEYS[1], digits(DAY))
      is[1], epoch = '1', 0
    end
    redis.call('HSET', KEYS[1], 'state', 3, 'before', is[1] == '3' and is[2] or is[1], 'round', round)
    redis.call('UNLINK', KEYS[4], KEYS[7], KEYS[8], KEYS[9])
  end
elseif not is[5] then
  return {-6, 0, 0}
elseif is[3] ~= round then
  return {-10, 0, 0}
elseif is[1] ~= '3' then
  return {0, epoch, micros} -- 'resume' has run
elseif step == 'put' then
  local key = KEYS[({orders = 7, reservations = 8, endings = 9})[ARGV[3]]]
  if ARGV[3] == 'orders' then
    redis.call('HSET', key, unpack(ARGV, 4))
  elseif ARGV[3] == 'reservations' then
    redis.call('ZADD', key, unpack(ARGV, 4))
  elseif redis.call('LLEN', key) == ARGV[4] + 0 then
    redis.call('RPUSH', key, unpack(ARGV, 5))
  end
  redis.call('PEXPIRE', key, digits(DAY))
else
  local found = {redis.call('HLEN', KEYS[7]), redis.call('ZCARD', KEYS[8]), redis.call('LLEN', KEYS[9])}
  for i = 1, 3 do
    if found[i] ~= ARGV[2 + i] + 0 then return {-1, ARGV[2 + i] + 0, found[i]} end
  end
  local gone = is[5] + 0
  for i, at in ipairs({2, 3, 6}) do
    local key = KEYS[at]
    redis.call('UNLINK', key)
    if found[i] > 0 then
      local made = KEYS[6 + i]
      redis.call('PEXPIRE', made, ttl_until(gone + LATER, now))
      redis.call('RENAME', made, key)
    end
  end
  redis.call('UNLINK', KEYS[4], KEYS[5])
  set_fields(6)
  redis.call('HSET', KEYS[1], 'fields', found[1], 'reservations', found[2], 'state', is[2])
  redis.call('PEXPIRE', KEYS[1], ttl_until(gone, now))
end
return {0, epoch, micros}
