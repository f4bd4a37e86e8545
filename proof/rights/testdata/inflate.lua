-- Has records like those of a key added to it, in parts.
-- KEYS[1] the key  KEYS[2] where its own records are kept from the first part to the last
-- ARGV[1] the number of the first of this part, less one  ARGV[2] the number of the last  ARGV[3] of the last of all
-- ARGV[4] same: with the times of its own records; past: with times of long ago
-- ARGV[5] ms by which times are later, and the ends of leases an hour more: none is over before the records are used
-- Reply: 1 if there are times in the key
local key, sample, from, to, past, later = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4] == 'past', tonumber(ARGV[5])
local HOUR, FIRST = 3600000, 1000000
local kind, times = redis.call('TYPE', key).ok, 0
local function digits(n) return string.format('%.0f', n) end
-- A text with all server times in it that much later.
local function shifted(text, ms)
  return (string.gsub(text, '%f[%d]1[6-9]%d%d%d%d%d%d%d%d%d%d%d%f[%D]', function(at)
    times = 1
    return digits(at + ms)
  end))
end
-- The records of a key, each two words of a command; of a word like !open there is one.
local function records(of)
  if kind == 'hash' then return redis.call('HGETALL', of) end
  local own, all = redis.call('ZRANGE', of, 0, -1, 'WITHSCORES'), {}
  for i = 1, #own, 2 do
    if not string.find(own[i], '^!%l+$') then all[#all + 1], all[#all + 2] = own[i + 1], own[i] end
  end
  return all
end
if from == 0 then
  local all = (kind == 'hash' or kind == 'zset') and records(key) or {}
  for i = 1, #all, 2 do
    local score = kind == 'zset' and tonumber(all[i])
    if not score then
      redis.call('HSET', key, all[i], shifted(all[i + 1], later + HOUR))
    else
      if score > 1e15 or score < -1e12 then -- a ticket, or a stamp
        redis.call('ZADD', key, digits(score + (score > 0 and 1000 or -1) * later), all[i + 1])
      elseif score > 1e12 then
        redis.call('ZADD', key, digits(score + later + HOUR), all[i + 1])
      end
      times = 1
    end
  end
  redis.call('COPY', key, sample, 'REPLACE')
end
-- What comes before and after the number in the name of a copy, which is as long as the name if that has room.
local function around(name)
  if #name >= 13 then return string.sub(name, 1, 1), string.sub(name, 9) end
  return name, ''
end
local command = ({hash = 'HSET', zset = 'ZADD', list = 'RPUSH', set = 'SADD'})[kind]
if kind == 'hash' or kind == 'zset' then
  local all, words, n = records(sample), {}, 0
  local first = kind == 'hash' and 1 or 2 -- which of the two words is the name
  local before, after = {}, {}
  for k = 1, #all, 2 do
    before[k], after[k] = around(all[k + first - 1])
    if past and kind == 'hash' then all[k + 1] = shifted(all[k + 1], -24 * HOUR) end
    if past and kind == 'zset' and tonumber(all[k]) > 0 then all[k] = false end
  end
  for i = from + 1, #all > 0 and to or 0 do
    local k = i % (#all / 2) * 2 + 1
    local name = before[k] .. (FIRST + i) .. after[k]
    if first == 1 then words[n + 1], words[n + 2] = name, all[k + 1] else words[n + 1], words[n + 2] = all[k] or i, name end
    n = n + 2
    if n == 2000 or i == to then
      redis.call(command, key, unpack(words, 1, n))
      n = 0
    end
  end
elseif kind == 'list' or kind == 'set' then
  local all, words, n = kind == 'list' and redis.call('LRANGE', sample, 0, -1) or redis.call('SMEMBERS', sample), {}, 0
  for i = from + 1, to do
    local before, after = around(all[i % #all + 1])
    n = n + 1
    words[n] = before .. (FIRST + i) .. after
    if n == 2000 or i == to then
      redis.call(command, key, unpack(words, 1, n))
      n = 0
    end
  end
elseif kind == 'stream' then
  local all = redis.call('XRANGE', sample, '-', '+', 'COUNT', 10)
  for i = from + 1, #all > 0 and to or 0 do redis.call('XADD', key, '*', unpack(all[i % #all + 1][2])) end
end
if to == tonumber(ARGV[3]) then redis.call('DEL', sample) end
return times
