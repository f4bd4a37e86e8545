-- A red packet: its keys, and how a script reads them.
-- uses: clock, ends, integer
--
-- KEYS[1]  the packet, a hash: n (shares), total, taken, given (cents), state (0 being sent, 1 open, 2 refunded), end and gone (server ms),
--          epoch (server us, 0 while it is being sent), ledger (1 if there is one), serial (number of its last entry), moved (how many
--          entries a database has); while it is being sent token (of the sending) and sum (of the shares that are stored)
-- KEYS[2]  the shares that are not taken, a list of cents. It is empty after a refund
-- KEYS[3]  the users, a hash: user -> 'ordinal;cents'
-- KEYS[4]  the ledger, a stream, if the packet keeps one. Entries have the ids 1-0, 2-0, ... and the fields of log
--
-- The hash says how many users, shares and entries there must be. With any other number a script changes nothing and replies
-- {-1, said, found}, or {-13, said, found} for the ledger: a user whose record is missing could have two shares.
local packet, shares, users, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local NUMBERS = {'n', 'total', 'taken', 'given', 'state', 'end', 'gone', 'epoch', 'ledger', 'serial', 'moved'}

-- The packet: its numbers, the server's time, and left and rest, the shares that are not taken and their sum.
local p = {now = false, micros = false, left = false, rest = false}

-- begin reads the packet. It returns nil, or the reply that says why nothing can be decided:
--
--   {-6, 0, 0}           there is no packet. What a packet leaves that is over is removed
--   {-10, 0, 0}          it is being sent
--   {-1, said, found}    users or shares are missing, or there are too many; {-1, -1, 0}: numbers that cannot be
--   {-13, said, found}   the same of entries
local function begin()
  p.now, p.micros = clock()
  local values = redis.call('HMGET', packet, unpack(NUMBERS))
  if not values[1] and redis.call('EXISTS', packet) == 0 then
    local found = orphans(redis.call('LLEN', shares) + redis.call('HLEN', users) + redis.call('EXISTS', ledger))
    return {found > 0 and -1 or -6, 0, found}
  end
  for i, name in ipairs(NUMBERS) do
    p[name] = tonumber(values[i])
    if not p[name] then
      refuse_newer(values[5]) -- the state
      return {-1, -1, 0}
    end
  end
  if expired(p.gone, p.now) then
    remove()
    return {-6, 0, 0}
  end
  if p.state == 0 then return {-10, 0, 0} end
  p.left, p.rest = p.n - p.taken, p.total - p.given
  local found = {redis.call('HLEN', users), p.state == 1 and redis.call('LLEN', shares) or p.left}
  if found[1] ~= p.taken then return {-1, p.taken, found[1]} end
  if found[2] ~= p.left then return {-1, p.left, found[2]} end
  if p.left < 0 or p.rest < 0 or p.left == 0 and p.rest ~= 0 then return {-1, -1, 0} end
  local entries = p.ledger == 1 and redis.call('XLEN', ledger) or 0
  if p.ledger == 1 and entries ~= p.serial - p.moved then return {-13, p.serial - p.moved, entries} end
end

-- log writes an entry of the ledger: kind, epoch, ordinal, n shares, user, money in cents, at (server us). Its kinds are in ledger.go. All
-- entries have all fields, in this order: see moved.lua in internal/ledger.
local function log(kind, ordinal, n, user, cents)
  if p.ledger ~= 1 then return end
  p.serial = p.serial + 1
  redis.call('XADD', ledger, digits(p.serial) .. '-0', 'k', kind, 'e', digits(p.epoch), 'o', digits(ordinal), 'n', digits(n), 'u', user,
    'm', digits(cents), 'at', digits(p.micros))
end

-- mend_ends gives all keys their ends in one go if the key that was made last has none: an end of the users before that of the packet would
-- look like their loss.
local function mend_ends()
  local last_made = p.ledger == 1 and ledger or users
  if redis.call('PTTL', last_made) < 0 then expire(p.gone - p.now) end
end
