-- The server's clock: all instants of requests and leases are compared with it only.
--
-- Instants are whole milliseconds, and time passes within a millisecond. The millisecond of an instant belongs to the
-- lease, the reservation or the request that lasts until then. It is expired only when that millisecond is over. The
-- server treats the expiry of a key in the same way. So no two scripts differ about an instant, and no lease is given
-- away before the instant that its holder computes:
--
--   its holder                                   server
--   sends, at 10.7 ms
--                                                10.9 ms, which is 10: a lease of 5 ms, until 15
--   counts 5 ms from the send: until 15.7 ms
--                                                15.2 ms, which is 15: not expired; once it was, half a millisecond too
--                                                soon
--                                                16.0 ms, which is 16: expired
--
-- A request is refused in the same way: with a not-after of 15 it still runs at 15.9 ms. Its client computes when none
-- of its requests can run any more, and adds that millisecond itself (script.LastRun).
--
-- Each script compares instants with these functions, or repeats their code where it makes no function
-- (TestScripts_Instants_AreComparedByTheLibrary).

-- Returns the server's time in ms and in µs.
local function clock()
  local time = redis.call('TIME')
  local s, us = time[1] + 0, time[2] + 0
  return s * 1000 + (us - us % 1000) / 1000, s * 1000000 + us
end

-- Reports whether the millisecond of an instant is over.
local function expired(instant, now)
  return now > instant + 0
end

-- Reports whether the millisecond of an instant has begun. It is for instants that take nothing from a holder, such as
-- the start and the end of a sale: a sale that ends now sells nothing more.
local function begun(instant, now)
  return now >= instant + 0
end

-- Returns the limit of expired scores in a sorted set of instants: they lie between -inf and this limit.
local function elapsed(now)
  return string.format('(%.0f', now)
end

-- Returns the TTL, ms, of a key that lasts until an instant. It is never 0, because with 0 the server deletes the key
-- at once.
local function ttl_until(instant, now)
  return string.format('%.0f', math.max(1, instant - now))
end

-- Reports whether a request comes too late: its caller gave up at notafter, server ms (0: the caller waits for any
-- time).
local function late(notafter, now)
  notafter = notafter + 0
  return notafter > 0 and now > notafter
end

-- Returns a number as decimal digits, because the server writes a double of 15 digits and more as 1e+15.
local function digits(n)
  return string.format('%.0f', n)
end
