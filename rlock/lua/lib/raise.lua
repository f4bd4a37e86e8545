-- The ends of keys that a renewal moves.

-- Have a key last for the lease, if it does not last longer or without end; 0 or less asks for nothing. It is a write in any
-- case: see grant. Returns what was left.
local function raise_expiry(key, lease)
  local left = redis.call('PTTL', key)
  if left >= 0 and lease > 0 then
    redis.call('PEXPIRE', key, math.max(left, lease))
  end
  return left
end
