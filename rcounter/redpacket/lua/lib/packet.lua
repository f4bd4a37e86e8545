-- A red packet: its keys, and what its scripts share.
-- uses: clock, ends, ledger
--
-- KEYS[1]  the packet, a hash: n total sum (of the shares stored) taken given state (0 being sent, 1 open, 2 refunded)
--          end gone epoch token; after a refund: refund (cents), by (the call); with a ledger: ledger (1), moved
-- KEYS[2]  the shares not yet taken, a list of cents
-- KEYS[3]  the users and the shares that they took, a hash: see grab.lua
-- KEYS[4]  the ledger, a stream, if the packet keeps one: see ledger.lua among the libraries of all packages. Fields: k kind (grant or
--          refund), e epoch, o ordinal (0 for the refund), n shares, c user, m cents, at the server's us
local packet, shares, users, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- untold is nil, or the reply if the ledger does not have one entry for every share taken, and one for the refund. These are numbers
-- that the packet has anyway, and they change in one write. So a grab by a process that knows of no ledger is noticed, too.
local function untold(keeps, taken, state, moved)
  if keeps == '1' then return ledger_mismatch(ledger, taken and taken + (state == 2 and 1 or 0), tonumber(moved)) end
end

-- orphaned_records counts the shares and records of a packet whose hash was lost. Users have money from that packet, so no other packet may
-- be sent in its place.
local function orphaned_records() return orphans(redis.call('LLEN', shares) + redis.call('HLEN', users) + redis.call('EXISTS', ledger)) end

-- tidy removes a packet whose time, if there is one, is over, or what it has left behind.
local function tidy(gone, now)
  if gone then
    if expired(gone, now) then remove() end
  elseif redis.call('EXISTS', packet) == 0 then
    orphaned_records()
  end
end
