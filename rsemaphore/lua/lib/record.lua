-- The record of a latch, a hash in the slot of its count: see latch_set.lua.
-- uses: clock, integer

-- Returns the generation after gen, which may be missing.
local function next_generation(gen)
  return digits((whole(gen, 'generation of a latch') or 0) + 1)
end

-- Notes that the latch of generation gen is over: from here on no look gets the message of its opening. The write that removes comes first: a server without memory does not refuse
-- it, and does not refuse the writes that follow it in the script.
local function close_record(record, gen)
  local next = next_generation(gen)
  redis.call('HDEL', record, 'until', 'opens')
  redis.call('HSET', record, 'gen', next)
end

-- Reports whether the TTL of a latch whose count is gone ran out, by the "until" of its record. In the last millisecond of its TTL it counts
-- as run out: what opens a latch here takes "until" away, so at worst a latch that Redisson opened in that millisecond is said to have
-- expired. The other mistake would let its waiters go.
local function ran_out(till)
  return till and till ~= '0' and begun(till, (clock()))
end
