-- Look at what clients with heartbeats hold that is renewed: an acquisition each, up to 1,000 permits at a time.
-- KEYS[1] permits, or the leases of weights
-- ARGV[1] '' for the first, or the end from which on to look  ARGV[2] how many of that end to leave out
-- Reply {end and number for the next, or '' and 0: that was all; then base of 13 bytes and number of permits of each}: of one that is in two
--   replies the higher number is right
-- Twice: reads only. A permit whose lease stays is in one of the replies, whatever is acquired and released between them.
-- An id that looks like ours may be Redisson's: see liveness.go. The 9th byte of one that is not renewed is 128 or more.
-- uses: clock
local from, skip = ARGV[1], tonumber(ARGV[2])
if from == '' then
  from = digits((clock()))
end
local list = redis.call('ZRANGE', KEYS[1], from, '+inf', 'BYSCORE', 'LIMIT', skip, 1000, 'WITHSCORES')
local reply, at = {'', 0}, {}
for i = 1, #list, 2 do
  local base, a, b, c = string.sub(list[i], 1, 13), string.byte(list[i], 7, 9)
  local x, y, z = string.byte(list[i], 14, 16)
  local number = #list[i] == 13 and 1 or #list[i] == 16 and (x * 256 + y) * 256 + z + 1 or math.huge
  if number <= 1000 and math.floor(a / 16) == 8 and a % 16 + b > 0 and c < 128 then
    if not at[base] then
      at[base] = #reply + 2
      reply[#reply + 1] = base
      reply[#reply + 1] = 0
    end
    reply[at[base]] = math.max(reply[at[base]], number)
  end
end
if #list == 2000 then
  reply[1] = list[2000]
  local i = 2000
  while i > 0 and list[i] == reply[1] do
    reply[2], i = reply[2] + 1, i - 2
  end
  if i == 0 and list[2000] == from then
    reply[2] = reply[2] + skip
  end
end
return reply
