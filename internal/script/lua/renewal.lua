-- The reply of a script that renews holds, for each hold:
--    1  renewed; or, if the request asks how long the hold lasts, 1 + ms left
--    0  the owner holds nothing
--   -1  not known, because memory is full
--   -2  the key is of another type
--   -3  the user may not read the key

-- Returns the reply for a key that the server refused to read.
local function failed_reply(error_reply)
  return string.find(error_reply.err, 'WRONGTYPE', 1, true) and -2 or -3
end

-- Returns the reply for a hold that exists. lease: -1 asks how long the hold lasts. left: ms left of the key, as PTTL
-- replies. ends_at: the hold's own end, server ms, if it has one. The earlier end counts. For a request that asks how
-- long the hold lasts, a hold in its last millisecond is over, because 1 ms would be too much.
local function renewal_reply(lease, left, ends_at, now)
  if lease >= 0 or left < 0 and not ends_at then
    return 1
  end
  local ms = math.min(left >= 0 and left or math.huge, ends_at and ends_at - now or math.huge)
  return ms < 1 and 0 or 1 + ms
end
