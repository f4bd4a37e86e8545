-- Publishing. A proxy that reads scripts wants the name of each command as it is, so there is a call for each of the two.

-- Publishes a message. publish is PUBLISH or SPUBLISH. Returns to how many connections of this server it went, or the error.
local function send(publish, channel, message)
  if publish == 'SPUBLISH' then
    return redis.pcall('SPUBLISH', channel, message)
  end
  return redis.pcall('PUBLISH', channel, message)
end
