-- What a script that renews holds replies for each hold: 1 it is renewed, or, if it was asked how long the hold lasts, 1 + ms left;
-- 0 the owner holds nothing; -1 not known (memory is full); -2 the key is of another type; -3 the key may not be read.

-- The reply where a look at a key was answered with an error.
local function failed_reply(error_reply)
  return string.find(error_reply.err, 'WRONGTYPE', 1, true) and -2 or -3
end

-- The reply for a hold that is there. lease: -1 asks how long it lasts. left: ms left of the key, as PTTL replies. ends_at: the hold's
-- own end, server ms, if it has one. The earlier end counts. A hold in its last millisecond is over for a caller that asks how long it lasts:
-- 1 ms would be more than is left.
local function renewal_reply(lease, left, ends_at, now)
  if lease >= 0 or left < 0 and not ends_at then
    return 1
  end
  local ms = math.min(left >= 0 and left or math.huge, ends_at and ends_at - now or math.huge)
  return ms < 1 and 0 or 1 + ms
end
