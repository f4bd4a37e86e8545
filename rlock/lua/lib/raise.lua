-- Raising the expiry of a key.

-- Raises the expiry of a key to the lease, if the lease is above 0. A longer expiry, and a key without one, stay as
-- they are. The expiry is written even if it does not change: see grant. Returns the ms that were left.
local function raise_expiry(key, lease)
  local left = redis.call('PTTL', key)
  if left >= 0 and lease > 0 then
    redis.call('PEXPIRE', key, math.max(left, lease))
  end
  return left
end
