-- The fencing tokens of Fenced locks and of Once.
-- uses: clock, integer

-- Returns the last token; 0 without one. It is read before the lock is taken, because a text that is no token must end
-- the script before anything is written.
local function read_last_token(token_key)
  local last = token_key and require_integer(redis.call('GET', token_key), 'last token') or 0
  if last > 9007199254740990 then
    error('WRONGTYPE no token can follow the last one', 0)
  end
  return last
end

-- Returns the next token, and keeps it for so many ms. A token is larger than all earlier tokens: larger than the last
-- token, which is kept for long, and at least the server's µs. So it is larger even if the last token was lost
-- (expired, flushed, restarted). A counter alone would start again from 1. Then the next holder's writes would be
-- refused for ever, or the last holder's writes be accepted (TestTokens_KeysLost_KeepGrowing).
local function mint_token(token_key, last, us, retention)
  local token = us
  if token_key then
    token = math.max(token, last + 1)
    if redis.call('PTTL', token_key) == -1 then -- Redisson made the key, and would count from 1 if it expired
      redis.call('SET', token_key, digits(token))
    else
      redis.call('SET', token_key, digits(token), 'PX', retention)
    end
  end
  return token
end
