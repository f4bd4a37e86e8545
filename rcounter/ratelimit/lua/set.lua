-- Keeps the limit of a name.
-- uses: clock, integer
--
-- KEYS[1]  the limit, a string: 'terms;at;by'
-- ARGV[1]  its terms: algorithm, rate, per in us or unit, burst or time zone, with commas; '' removes it
-- ARGV[2]  who sets it
--
-- Replies  1
--
-- Not safe to run twice: a later run would undo what another set in between. The caller sends it once.
--
-- The key has no end: a limit that went away by itself would let more pass.
local key, terms, by = KEYS[1], ARGV[1], ARGV[2]
refuse_newer(redis.call('GET', key)) -- of another type it fails with WRONGTYPE, where SET would replace it
if terms == '' then
  redis.call('DEL', key)
  return 1
end
local now = clock()
redis.call('SET', key, terms .. ';' .. digits(now) .. ';' .. by)
return 1
