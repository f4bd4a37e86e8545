-- Counts the listeners on a channel of this server. Redisson's waiters are in no queue of ours: a script learns that
-- they wait because they listen. Processes of this library listen on Redisson's channels, too, while a holder of
-- Redisson's would not hand the lock over, and for a while afterwards. Each of them subscribes to a second channel in
-- the same command, the mark (keyname.Mark), and unsubscribes from both in one command. So a listener without a mark is
-- Redisson's:
--
--   process A        process B        Java                   listeners  marks
--   SUBSCRIBE both                                               1        1     none of Redisson's
--                    SUBSCRIBE both                              2        2     none
--                                     SUBSCRIBE                  3        2     one
--   is killed                                                    2        1     one: the server removes both in one step
--                    UNSUBSCRIBE both                            1        0     one
--
-- A process whose user may not subscribe to the mark, which is a channel of grants, is taken for Redisson's. It is in
-- no queue, either.

local MARK = 'redlatch_grant:'

-- Returns the number of connections of this server that are subscribed to a channel, and to a second channel if there
-- is one; nil if the user has no right to ask.
local function count_listeners(publish, ...)
  local count
  if publish == 'SPUBLISH' then
    count = redis.pcall('PUBSUB', 'SHARDNUMSUB', ...)
  else
    count = redis.pcall('PUBSUB', 'NUMSUB', ...)
  end
  if not count.err then
    return count[2], count[4]
  end
end

-- Reports whether a waiter of Redisson's listens on a channel of Redisson's.
local function java_waits(publish, channel)
  local connections, marks = count_listeners(publish, channel, MARK .. channel)
  return connections and connections > marks
end
