-- The stored answer of a Once: a hash that expires when the answer may no longer be served.
--
--   answer       the bytes
--   fingerprint  of the request that was answered
--   stale        for how many ms before its end the answer is old: it is served then, and one process renews it
--   by           the owner that stored the answer, so that a second run of its script recognizes its work
--
-- Scripts return an answer as one text: the length of the fingerprint, a space, the fingerprint, the answer. Waiters
-- get it by a message on their process's channel of grants: "=", the length of the waiter's owner, a space, the owner,
-- the text. The message is a result, so the waiter sends no other request:
--
--   waiter B                                     holder A
--   acquire: held; queued ---------------------->
--   sleeps                                       store: the answer is written, A and B's entry are removed
--   <----------------------------------- on B's channel: "=", B, the answer
--   returns the answer
--
-- * The message is lost, or B's process missed it: B polls, and its request returns the answer.
-- * B has left: no call waits under this owner, so the message is dropped. B's entry is gone.
-- * The message arrives before the reply to B's own request, which says "held": B returns the answer all the same.
--   B's owner is used for one wait, so the message cannot be about an earlier answer.
-- * B's process dies: nothing is left of B.
-- uses: queue, clock, integer, send

local MAX_SERVED = 128 -- the most waiters that one script serves: a call may not take long
local MAX_SENT = 16384 -- the longest text that is sent to each waiter; for a longer one the waiter makes a request

-- Returns the stored answer as a text, whether it is fresh, and for how many ms it is served; nil without one. A hash of another program, or of a
-- later version, ends the script before anything is written.
local function read_answer(key)
  local fields = redis.call('HMGET', key, 'stale', 'fingerprint', 'answer')
  local stale = require_integer(fields[1], 'stale time of the answer')
  if not stale and redis.call('EXISTS', key) == 0 then
    return nil
  elseif not (stale and fields[2] and fields[3]) then
    error('WRONGTYPE the answer is not complete', 0)
  end
  local left = redis.call('PTTL', key)
  return #fields[2] .. ' ' .. fields[2] .. fields[3], left < 0 or left > stale, left
end

-- Gives the queued waiters the answer, and removes them from the queue. If there are more than MAX_SERVED, the first of
-- the others is notified: its request finds the answer, and serves the next MAX_SERVED. If that process has died, a
-- waiter that polls does so.
local function serve_answer(q, text)
  local entries = redis.pcall('ZRANGE', q.key, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, MAX_SERVED + 1)
  for i = 1, math.min(#entries, MAX_SERVED) do
    local waiter = read_entry(entries[i])
    dequeue(q, entries[i], waiter)
    if waiter and #text <= MAX_SENT then
      send(q.publish, q.grants .. waiter.process, '=' .. #waiter.owner .. ' ' .. waiter.owner .. text)
    elseif waiter then
      notify(q, waiter, 0, 0)
    end
  end
  local next_entry = entries[MAX_SERVED + 1] and read_entry(entries[MAX_SERVED + 1])
  if next_entry then
    notify(q, next_entry, 0, 0)
  elseif not entries.err then
    redis.call('DEL', q.key) -- stamps and reservations without entries
  end
end
