-- Read the renewed acquisitions of clients with heartbeats, up to 1,000 permits at a time.
-- KEYS[1] permits, or the leases of weights
-- ARGV[1] '' for the first call, or the end of lease from which to read on  ARGV[2] how many permits of that end to
--   skip
-- Reply {end and number for the next call, or '' and 0 after the last permit; then base of 13 bytes and number of
--   permits of each acquisition}. If an acquisition is in two replies, the higher number is right
-- Twice: reads only. A permit whose lease does not change is in one of the replies, whatever is acquired and released
--   between them.
-- An id that looks like an id of this library may be Redisson's: see liveness.go. If the 9th byte is 128 or more, the
-- permit is not renewed.
-- uses: clock
local from, skip = ARGV[1], tonumber(ARGV[2])
if from == '' then
  from = digits((clock()))
end
local list = redis.call('ZRANGE', KEYS[1], from, '+inf', 'BYSCORE', 'LIMIT', skip, 1000, 'WITHSCORES')
local reply, positions = {'', 0}, {}
for i = 1, #list, 2 do
  local base, byte7, byte8, byte9 = string.sub(list[i], 1, 13), string.byte(list[i], 7, 9)
  local byte14, byte15, byte16 = string.byte(list[i], 14, 16)
  local number = #list[i] == 13 and 1 or #list[i] == 16 and (byte14 * 256 + byte15) * 256 + byte16 + 1 or math.huge
  if number <= 1000 and math.floor(byte7 / 16) == 8 and byte7 % 16 + byte8 > 0 and byte9 < 128 then
    if not positions[base] then
      positions[base] = #reply + 2
      reply[#reply + 1] = base
      reply[#reply + 1] = 0
    end
    reply[positions[base]] = math.max(reply[positions[base]], number)
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
