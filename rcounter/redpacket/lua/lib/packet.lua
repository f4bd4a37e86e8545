-- A red packet: its keys, and what its scripts share.
-- uses: ends
--
-- KEYS[1]  the packet, a hash: n total sum (of the shares stored) taken given state (0 being sent, 1 open, 2 refunded)
--          end gone epoch token; after a refund: refund (cents), by (the call)
-- KEYS[2]  the shares not yet taken, a list of cents
-- KEYS[3]  the users and the shares that they took, a hash: see grab.lua
local packet, shares, users = KEYS[1], KEYS[2], KEYS[3]

-- strays counts the shares and records of a packet whose hash was lost. Users have money from that packet, so no other packet may
-- be sent in its place.
local function strays() return stray(redis.call('LLEN', shares) + redis.call('HLEN', users)) end

-- tidy removes a packet whose time, if there is one, is over, or what it has left behind.
local function tidy(gone, now)
  if gone then
    if now >= gone then remove() end
  elseif redis.call('EXISTS', packet) == 0 then
    strays()
  end
end
