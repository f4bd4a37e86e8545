-- Publishing. A proxy that reads scripts needs the name of each command as a literal, so each command has its own call.

-- Publishes a message. publish is PUBLISH or SPUBLISH. Returns the number of connections of this server that received
-- the message, or the error.
local function send(publish, channel, message)
  if publish == 'SPUBLISH' then
    return redis.pcall('SPUBLISH', channel, message)
  end
  return redis.pcall('PUBLISH', channel, message)
end
