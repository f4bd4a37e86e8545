-- What the tenants of a semaphore hold. The record of the store (notes, or main) has two kinds of fields for it:
--   "t" and a member of the leases   "1" or "0", and its tenant; 17 bytes for an id, 14 for a base
--   "held by tenant " and a tenant   how many permits the tenant holds that have "1", because they were acquired with a
--                                    maximum; missing if it holds none
-- A member of a tenant has a mark in its ninth byte, so scripts read these fields for no other member. The field of a
-- member is removed in the same step in which it is counted, so each member is counted once, however often a script
-- runs. A refused command does not end a script, as in ids.lua.
-- uses: clock

local TENANT_HOLDS = 'held by tenant ' -- 15 bytes, so that no field has 13, as bases have
local freed_tenants = {} -- the tenants of which this run gave permits back

-- Reports whether a member of the leases belongs to a tenant.
local function is_of_tenant(member)
  return #member >= 13 and string.byte(member, 9) % 128 >= 64
end

-- Returns the first 500 of up to 1,000 members if any of them belongs to a tenant, and otherwise all. A tenant's member
-- takes twice as long to give back as others.
local function limit_members(members)
  for _, member in ipairs(#members > 500 and members or {}) do
    if is_of_tenant(member) then
      return {unpack(members, 1, 500)}
    end
  end
  return members
end

-- Returns how many permits a tenant holds.
local function tenant_holds(record, tenant)
  local held = redis.pcall('HGET', record, TENANT_HOLDS .. tenant)
  return type(held) == 'string' and tonumber(held) or 0
end

-- Subtracts n permits from what a tenant holds.
local function subtract_from_tenant(record, tenant, n)
  freed_tenants[tenant] = true
  local left = redis.pcall('HINCRBY', record, TENANT_HOLDS .. tenant, digits(-n))
  if type(left) == 'number' and left <= 0 then
    redis.pcall('HDEL', record, TENANT_HOLDS .. tenant)
  end
end

-- Records members, each of so many permits, that were granted to the tenant of a share.
local function record_tenant(record, members, each, share)
  local fields, text = {}, (share.max > 0 and '1' or '0') .. share.tenant
  for _, member in ipairs(members) do
    fields[#fields + 1], fields[#fields + 2] = 't' .. member, text
  end
  local new = redis.pcall('HSET', record, unpack(fields))
  if share.max > 0 and type(new) == 'number' and new > 0 then
    redis.pcall('HINCRBY', record, TENANT_HOLDS .. share.tenant, digits(new * each))
  end
end

-- Returns the tenant in the text of a field, and whether its maximum counts; nil without a text.
local function read_tenant(text)
  if text then
    return string.sub(text, 2), string.sub(text, 1, 1) == '1'
  end
end

-- Removes the fields of members that are given back, 1,000 at most. amount_of returns the permits of a member. others are
-- fields that go with them.
local function forget_tenants(record, members, amount_of, others)
  local fields, amounts, held = {}, {}, {}
  for _, member in ipairs(members) do
    if #member >= 13 and string.byte(member, 9) % 128 >= 64 then -- is_of_tenant: no function is made for others
      fields[#fields + 1], amounts[#amounts + 1] = 't' .. member, amount_of(member)
    end
  end
  if #fields == 0 then
    if others then
      redis.pcall('HDEL', record, unpack(others))
    end
    return
  end
-- libraries
  local tenants = redis.pcall('HMGET', record, unpack(fields))
  for i = 1, tenants.err and 0 or #tenants do
    local tenant, is_counted = read_tenant(tenants[i])
    if is_counted then
      held[tenant] = (held[tenant] or 0) + amounts[i]
    end
  end
  for _, field in ipairs(others or {}) do
    fields[#fields + 1] = field
  end
  redis.pcall('HDEL', record, unpack(fields))
  for tenant, n in pairs(held) do
    subtract_from_tenant(record, tenant, n)
  end
end

-- Returns the text of a member for inspect: "<number> <label>", or "<number>:<length> <tenant><label>".
local function with_tenant(number, tenant, label)
  return tenant and number .. ':' .. #tenant .. ' ' .. tenant .. label or number .. ' ' .. label
end
