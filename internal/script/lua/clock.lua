-- The server's clock, the only one that requests and leases are compared with.

-- Returns the server's time in ms and in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
end

-- Reports whether a request comes too late: its caller has given up at notafter, server ms (0: it waits for any time).
local function late(notafter, now)
  notafter = tonumber(notafter)
  return notafter > 0 and now > notafter
end

-- A number as decimal digits: the server writes a double of 15 digits and more as 1e+15.
local function digits(n)
  return string.format('%.0f', n)
end
