-- The server's clock, the only one that requests and leases are compared with.
--
-- Instants are whole milliseconds, but what they are compared with goes on within them. The millisecond that an instant names belongs to
-- what lasts until then: a lease, a reservation, a request that may run until then. It is expired only when that millisecond is over. The
-- server does the same with the end of a key. So no two scripts differ about an instant, and nothing is given away before the instant
-- that its holder computes:
--
--   its holder                                   server
--   sends, at 10.7 ms
--                                                10.9 ms, which is 10: a lease of 5 ms, until 15
--   counts 5 ms from the send: until 15.7 ms
--                                                15.2 ms, which is 15: not expired; it was once, half a millisecond too soon
--                                                16.0 ms, which is 16: expired
--
-- A request is refused in the same way, so one that may run until 15 still runs at 15.9 ms. Its client, which wants to know when none
-- of its requests runs any more, adds that millisecond itself (script.LastRun).
--
-- Every script compares instants by these functions, or says the same where it makes no function
-- (TestScripts_Instants_AreComparedByTheLibrary).

-- Returns the server's time in ms and in µs.
local function clock()
  local time = redis.call('TIME')
  local s, us = time[1] + 0, time[2] + 0
  return s * 1000 + (us - us % 1000) / 1000, s * 1000000 + us
end

-- Reports whether an instant, server ms, is over.
local function expired(instant, now)
  return now > instant + 0
end

-- Reports whether the time has begun that follows an instant at which no one loses anything: the sale from its start on, and what comes
-- after its end. That millisecond is its first, so a sale that is to end now sells nothing more.
local function begun(instant, now)
  return now >= instant + 0
end

-- The scores of a sorted set of instants: those that are expired lie between -inf and this.
local function elapsed(now)
  return string.format('(%.0f', now)
end

-- A TTL, ms, for a key that is to last until an instant. It is never 0, with which the server deletes the key at once.
local function ttl_until(instant, now)
  return string.format('%.0f', math.max(1, instant - now))
end

-- Reports whether a request comes too late: its caller has given up at notafter, server ms (0: it waits for any time).
local function late(notafter, now)
  notafter = notafter + 0
  return notafter > 0 and now > notafter
end

-- A number as decimal digits: the server writes a double of 15 digits and more as 1e+15.
local function digits(n)
  return string.format('%.0f', n)
end
