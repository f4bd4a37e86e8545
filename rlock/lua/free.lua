-- The common case of acquire, release, plain_acquire and plain_release, for many locks of one server in one call: each takes its
-- lock if that is free and the queue is empty, or releases it if it is its only owner's and the queue is empty. A lock in any other state
-- is to ask alone: nothing has been done for it. A lock that cannot be looked at (of another type, no right) is left alone, too, and
-- the lone call says what is wrong.
-- KEYS a lock, and its queue
-- ARGV[1] PUBLISH or SPUBLISH, then for each lock: owner, lease in ms or '' to release, not after in server ms (0: any time)
--   or the channel of a release, 1 if it is a plain lock or ''
-- Reply {server ms, and for each 1 done, 0 ask alone}
-- Twice: an owner that holds its lock, or holds it no more, has to ask alone, and learns that from a script that may run
--   twice.
-- uses: clock, send
local publish, now = ARGV[1], clock()
local out, a, i = {now}, 2, 1
while KEYS[i] do
  local key, queue, done = KEYS[i], KEYS[i + 1], 0
  local owner, lease, last, plain = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3] == '1'
  a, i = a + 4, i + 2
  if lease ~= '' then
    local ms = tonumber(lease)
    if owner ~= '' and ms and ms >= 1 and ms <= 4503599627370496 and ms % 1 == 0 and not late(last, now) then -- see fit
      if plain then
        local set = redis.pcall('EXISTS', queue) == 0 and redis.pcall('SET', key, owner, 'NX', 'PX', lease)
        if set and not set.err then
          done = 1
        end
      elseif redis.pcall('EXISTS', key, queue) == 0 and redis.pcall('HSET', key, owner, '1') == 1 then
        if redis.pcall('PEXPIRE', key, lease) == 1 then
          done = 1
        else -- no right to it: a lock without an end must not stay
          redis.pcall('HDEL', key, owner)
        end
      end
    end
  elseif plain then
    if owner ~= '' and redis.pcall('EXISTS', queue) == 0 and redis.pcall('GET', key) == owner and redis.pcall('DEL', key) == 1 then
      done = 1
    end
  -- Looked at before it is removed: a lone call afterwards would find nothing, and report a loss.
  elseif redis.pcall('EXISTS', queue) == 0 and redis.pcall('HLEN', key) == 1 and redis.pcall('HDEL', key, owner) == 1 then
    send(publish, last, '0')
    done = 1
  end
  out[#out + 1] = done
end
return out
