-- Looks at the limit of a name.
-- uses: clock
--
-- KEYS[1]  the limit: see set.lua
--
-- Replies  {'terms;at;by', now in ms}, '' in place of the first for none
--
-- Safe to run twice: it writes nothing.
local now = clock()
return {redis.call('GET', KEYS[1]) or '', digits(now)}
