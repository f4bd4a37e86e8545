-- Removes a sale with all that it knows, or what is left of one that has lost a part.
-- uses: ends, integer
--
-- KEYS     those of sale.lua, and then those of restore.lua
-- ARGV[1]  the epoch of the opening to remove, '' to ask for it; '0': of what is left of one without an epoch
--
-- Replies  {0, 0, 1}          removed
--          {0, 0, 0, epoch}   the epoch asked for, or another than meant, as the hash has it: nothing changed
--          {-6, 0, 0}         there is none
--
-- Safe to run twice: the second run finds none. Safe however late: a copy that comes after the name was opened again
-- names another opening.
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch')
local epoch = found[2] or '0'
refuse_newer(found[1])
if redis.call('EXISTS', unpack(KEYS)) == 0 then return {-6, 0, 0} end
if ARGV[1] ~= epoch then return {0, 0, 0, epoch} end
remove()
return {0, 0, 1}
