-- What the scripts of a CountingSemaphore share. Its permits are a number, and nobody knows who has them, so nothing on the server could
-- tell a permit that a waiter uses from one that was handed to a waiter who is gone. So what is handed over is only lent until its
-- waiter claims it:
--   given    a sorted set: "<base of 13 bytes> <number>" -> until when its waiter may claim it, server ms
--   claimed  a sorted set: base -> until when a call that claimed, or took, may be made again
-- The number is lowered when permits are given. A claim takes them out of "given" and leaves a mark; nothing else changes.
--
--   waiter                                  server                             releases
--   acquire: too few; queued  ------------>
--                                           number + n, - n; given: base n  <------ n
--   <-- a message, a reply, or nothing at all
--   acquire again: that is the claim ----->  not given any more; marked: granted
--      no reply                              (the mark says "granted" again, for as long as a call may be repeated)
--   acquire again  ----------------------->  granted
--
-- * A waiter that never asks again, because it is gone or was cut off, does not have the permits: whoever comes by after that time gives
--   them back. One that asks after that finds nothing, and queues anew. So a grant is never believed without its claim.
-- * A waiter that gives up withdraws, and what was given to it or marked goes back. It withdraws again once no request of its can run
--   any more: one that ran in between would have entered it anew (counting_withdraw.lua).
-- * If the number is gone, by its TTL or by hand, so is what was given of it.
-- uses: clock, queue

-- Returns the queue of a script, by its KEYS[4] and ARGV[1] to ARGV[5].
local function line_of()
  local now, us = clock()
  return {key = KEYS[4], channel = ARGV[1], publish = ARGV[2], grants = ARGV[3], conn = ARGV[4], pollcap = tonumber(ARGV[5]), now = now, us = us, most = math.huge, turns = true}
end

-- Gives back what nobody has claimed in time. Returns how many.
local function reclaim(given, now)
  local back = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', given, '-inf', digits(now))) do
    redis.call('ZREM', given, member)
    back = back + tonumber(string.sub(member, 15))
  end
  return back
end

-- Marks what a waiter has for good, so that its call can be made again for ms.
local function mark(claimed, base, now, ms)
  redis.call('ZREMRANGEBYSCORE', claimed, '-inf', digits(now))
  redis.call('ZADD', claimed, digits(now + ms), base)
  redis.call('PEXPIRE', claimed, ms)
end

-- Claims what was given to a waiter, or finds that it is claimed already.
local function claim(given, claimed, base, n, now, ms)
  if redis.call('ZREM', given, base .. ' ' .. digits(n)) == 0 and not redis.call('ZSCORE', claimed, base) then
    return false
  end
  mark(claimed, base, now, ms)
  return true
end

-- Returns how permits are given, taken back and waited for, as serve has it. What is given of a number that has an end has one, too, long
-- after that: nobody might come by to take it out. Of a number without an end it has none, or it would be lost.
local DAY = 86400000
local function giving(key, given, now)
  return function(base, n, till)
    redis.call('ZADD', given, digits(till), base .. ' ' .. digits(n))
    local left = redis.call('PTTL', key)
    if left >= 0 then
      redis.call('PEXPIRE', given, digits(left + DAY))
    else
      redis.call('PERSIST', given)
    end
  end, function(base, n)
    redis.call('ZREM', given, base .. ' ' .. digits(n))
  end, function(n, free)
    local list = redis.call('ZRANGE', given, 0, 63, 'WITHSCORES')
    for i = 1, #list, 2 do
      free = free + tonumber(string.sub(list[i], 15))
      if free >= n then
        return math.max(1, tonumber(list[i + 1]) - now)
      end
    end
    return -1
  end
end

-- Says that the calling process waits: its entries are vouched for, and it listens to Redisson's channel ("!l<process>").
local function waits(q)
  redis.call('ZADD', q.key, -q.now, '!' .. q.conn, -q.now, '!l' .. q.conn)
end

-- Returns how many processes of ours listen to Redisson's channel: those in the queue, and those that were a moment ago, because a
-- subscription outlasts its last use. Without this they would be taken for Redisson's, and in every eighth release all of them ask.
local HEARS = 1000
local function our_listeners(q)
  local seen, n = {}, 0
  local function hears(who)
    if who and not seen[who] then
      seen[who], n = true, n + 1
    end
  end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', q.key, '(0', '+inf', 'LIMIT', 0, MOST)) do
    local _, _, _, _, who = read_entry(entry)
    hears(who)
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.key, '-inf', digits(HEARS - q.now))) do
    hears(string.match(member, '^!l(.+)$'))
  end
  return n
end

-- Hands over what a call has added to the number, which is free now. Returns the number then, what serve says of this process, and
-- whether Redisson's waiters are to be told of the number.
local function hand_over(q, key, given, free, added)
  if redis.call('EXISTS', q.key) == 0 then
    return free, {}, -1, true
  end
  vouch(q)
  local java = lined_up(q) and reserve(q, q.channel, added, our_listeners)
  local left, own, look, head = serve(q, free, math.huge, giving(key, given, q.now))
  if left ~= free then
    redis.call('INCRBY', key, digits(left - free))
  end
  return left, own, look, java or not head
end

-- Adds to a reply what serve said of this process.
local function and_own(reply, own)
  for _, word in ipairs(own) do
    reply[#reply + 1] = word
  end
  return reply
end
