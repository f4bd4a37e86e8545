-- Keep the fencing token of a holder of a Quorum at one of its members, or say which token was the last there.
-- uses: integer, clock
-- KEYS[1] the lock  KEYS[2] its tokens: a hash; the last token, the owner that has it, and which run of the server kept it
-- ARGV[1] owner; without it, only say which was the last  ARGV[2] token  ARGV[3] which run of the server gave the vote
-- ARGV[4] how long the token is kept, ms
-- Reply {1, token} it is kept; {2, the last token} that one is as late or later, nothing done; {0, 0} the owner does not hold the
--   lock, nothing done; without an owner {1, the last token, or the server's µs if that is more}
-- Twice: a second run finds its own token, and keeps it. One that comes when the owner is gone does nothing.
--
-- The owner has to hold this member when its token is kept: of two holders the earlier one's could otherwise be kept here after the
-- later one had asked, and be greater.
-- The run is the one that gave the vote. If the server was restarted since, and still has the vote, the token counts as kept by an
-- earlier run, which is less than is true, and safe.
local last = redis.call('HMGET', KEYS[2], 'token', 'by')
local kept = whole(last[1], 'last token') or 0
local now, us = clock()
local owner = ARGV[1]
if not owner then
  return {1, math.max(kept, us)}
end
local held = redis.call('HMGET', KEYS[1], owner, owner .. '!')
local till = held[2] and tonumber(held[2])
if not held[1] or till and (till < 0 or expired(till, now)) then
  return {0, 0}
end
local token = tonumber(ARGV[2])
if kept > token or kept == token and last[2] ~= owner then
  return {2, kept}
end
redis.call('HSET', KEYS[2], 'token', ARGV[2], 'by', owner, 'run', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {1, token}
