-- A capacity with a revision: the capacity with the highest revision counts, whichever client sends it first, until a
-- Resize.
--
--   old program: 5, revision 1       server                        new program: 8, revision 2
--   acquires  ---------------------> 5, revision 1
--                                    8, revision 2   <------------ acquires
--   acquires  ---------------------> 8: the older revision changes nothing, and its request is served out of 8
--
-- So two versions of a program that run at once do not fight, in whatever order their requests arrive, and even if a
-- request is sent again, because the revision only rises. Going back to 5 takes revision 3.
-- uses: clock

local REVISION_KEPT = 604860000 -- as long as a resize

-- Writes the revision and its capacity into a hash, if the revision is newer than the one in the hash. Returns whether
-- it is. Returns nil and the other capacity if the same revision came with another capacity before: then one of two
-- programs is wrong, and the script cannot know which.
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
