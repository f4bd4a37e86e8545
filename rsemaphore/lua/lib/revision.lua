-- A capacity that has a revision: the one with the highest revision counts, whichever client comes first with it, until a Resize.
--
--   old program: 5, revision 1       server                        new program: 8, revision 2
--   acquires  ---------------------> 5, revision 1
--                                    8, revision 2   <------------ acquires
--   acquires  ---------------------> 8: the older one changes nothing, and is served out of 8
--
-- So two versions of a program that run at once do not fight, in whatever order their requests arrive, and also if one is sent again:
-- the revision only rises. To go back to 5 takes revision 3.
-- uses: clock

local REVISION_KEPT = 604860000 -- as long as a resize

-- Notes the revision and its capacity in a hash, if it is newer than what is there. Returns whether it is; or nil and another capacity, if
-- the same revision came with that before: then one of two programs is wrong, and it cannot be known which.
local function revise(hash, capacity, revision)
  local known, before = string.match(redis.call('HGET', hash, 'revised') or '0 0', '^(%d+) (%d+)$')
  if revision > tonumber(known) then
    redis.call('HSET', hash, 'revised', digits(revision) .. ' ' .. digits(capacity), 'keep', digits(REVISION_KEPT), 'capacity', digits(capacity))
    redis.call('PEXPIRE', hash, digits(REVISION_KEPT))
    return true
  end
  if revision == tonumber(known) and tonumber(before) ~= capacity then
    return nil, tonumber(before)
  end
  return false
end
