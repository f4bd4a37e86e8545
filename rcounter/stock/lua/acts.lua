-- Acts on requests and reservations, one or several.
-- uses: acts
--
-- KEYS, ARGV
-- Replies  see acts.lua in lib
--
-- Safe to run twice: see there.
return flight()
