-- The common case of acquire, release, plain_acquire and plain_release, for many locks of one server in one call. A
-- request takes its lock if the lock is free and the queue is empty. It releases its lock if the owner is the only one
-- and the queue is empty. In any other state the script does nothing for the request, and the caller sends a lone call.
-- It does nothing either for a lock that it cannot read (another type, no right): the lone call then returns the
-- refusal.
-- KEYS for each request: the lock, its queue
-- ARGV[1] PUBLISH or SPUBLISH, then for each request: owner, lease in ms or '' to release, not-after instant in server
--   ms (0: any time) or the channel of a release, 1 for a plain lock or ''
-- Reply {server ms, and for each request 1 done, 0 send a lone call}
-- Twice: the second run finds a lock that the owner holds already, or holds no longer. The reply is then 0, and the
--   lone call runs a script that may run twice.
-- uses: clock, send
local publish, now = ARGV[1], clock()
local outcomes, arg, i = {now}, 2, 1
while KEYS[i] do
  local key, queue, done = KEYS[i], KEYS[i + 1], 0
  local owner, lease, last, plain = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3] == '1'
  arg, i = arg + 4, i + 2
  if lease ~= '' then
    local ms = tonumber(lease)
    if owner ~= '' and ms and ms >= 1 and ms <= 4503599627370496 and ms % 1 == 0 and not late(last, now) then -- see is_valid
      if plain then
        local set = redis.pcall('EXISTS', queue) == 0 and redis.pcall('SET', key, owner, 'NX', 'PX', lease)
        if set and not set.err then
          done = 1
        end
      elseif redis.pcall('EXISTS', key, queue) == 0 and redis.pcall('HSET', key, owner, '1') == 1 then
        if redis.pcall('PEXPIRE', key, lease) == 1 then
          done = 1
        else -- the user has no right to PEXPIRE: a lock without an expiry must not stay
          redis.pcall('HDEL', key, owner)
        end
      end
    end
  elseif plain then
    if owner ~= '' and redis.pcall('EXISTS', queue) == 0 and redis.pcall('GET', key) == owner and redis.pcall('DEL', key) == 1 then
      done = 1
    end
  -- HLEN comes before HDEL: after a removal that fails half way, the lone call would find nothing, and report a loss.
  elseif redis.pcall('EXISTS', queue) == 0 and redis.pcall('HLEN', key) == 1 and redis.pcall('HDEL', key, owner) == 1 then
    send(publish, last, '0')
    done = 1
  end
  outcomes[#outcomes + 1] = done
end
return outcomes
