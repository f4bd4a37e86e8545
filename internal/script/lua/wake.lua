-- Messages that wake waiters. A user without rights on the channel can still release: waiters then poll.
-- uses: clock, send

-- Wakes the waiters on a channel with a message; publish is PUBLISH or SPUBLISH, '' to send nothing.
local function wake(publish, channel, message)
  if publish ~= '' then
    send(publish, channel, message)
  end
end

-- Wakes waiters for permits. Redisson's waiters read the message as a number of permits, and fail at a negative number.
local function wake_for_permits(publish, channel, available)
  if available > 0 then
    wake(publish, channel, digits(available))
  end
end
