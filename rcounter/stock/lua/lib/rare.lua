-- What a call seldom needs of a stock.
-- uses: clock, ends, state

-- ends gives all keys but the flag an end: the hash the end of the retention, the others LATER; see ends.lua.
local function ends() expire(s.gone - s.now, 5) end

-- orphaned_records is how many records there are of a stock whose hash was lost. Its claimants have units, so nothing may be opened over
-- it. The hash is also missing once the retention is over, and then the records may be removed. What they have left to live
-- tells the two apart: an hour or less after the retention, more after a loss while the stock sells
-- (TestStock_LeftoverKeys_AreRemovedExceptAfterALoss).
local function orphaned_records()
  return orphans(redis.call('HLEN', s.users) + redis.call('HLEN', s.records) + redis.call('ZCARD', s.holds) + redis.call('EXISTS', s.ledger), 5)
end

-- mark sets the flag, until a call must look again, if none writes: until the next deadline of a hold, or the end.
local function mark()
  local ms = s.ending - s.now
  if s.waiting > 0 then ms = math.min(ms, tonumber(redis.call('ZRANGE', s.holds, 0, 0, 'WITHSCORES')[2]) - s.now) end
  if not refusal() and ms > 0 then redis.call('SET', s.flag, digits(s.epoch), 'PX', digits(ms)) end
end

-- follow has the flag follow what is left now. before is how many units were left before the script.
local function follow(before)
  local left = s.limit - s.sold - s.held
  if left > 0 and before <= 0 then
    redis.call('DEL', s.flag)
  elseif left <= 0 and before > 0 then
    mark()
  end
end

-- endless gives all keys their ends if one has none. If the records ended before the stock, that would look like their loss
-- (TestStock_KeyLostItsEnd_GetsItBack). wrote is the claimants or the records: what the script wrote to.
local function endless(wrote)
  if redis.call('PTTL', wrote) == -1 or redis.call('PTTL', s.stock) == -1 or s.waiting > 0 and redis.call('PTTL', s.holds) == -1
      or s.keeps == 1 and redis.call('PTTL', s.ledger) == -1 then
    ends()
  end
end

-- touch writes something that changes nothing, if the caller waits for replicas (sure is '1') and the answer is already recorded.
-- WAIT waits only for what its own connection has written; from Redis 7.2 on it returns at once if that is nothing. The first
-- copy of a claim grants a unit, and its connection breaks before a replica confirms. The second copy comes by a new connection
-- and only finds the record: without this write WAIT would confirm what no replica has. This write comes after the grant in the
-- server's history, so a replica that has it has the grant (TestAnswers_Confirmed_ComeWithAWrite).
local function touch(sure)
  if sure == '1' then redis.call('HSET', s.stock, 'state', digits(s.state)) end
end

-- forget removes at most so many records that were kept long enough. It is complete in itself. While Restore looks at the records
-- nothing is forgotten.
local function forget(most)
  if not s.remember or is_suspended() then return end
  local due = redis.call('LRANGE', s.endings, 0, most - 1)
  local fields, states = {}, {}
  for i = 1, #due do
    local last, ended, id = due[i]:match('^(%d+);(%u);(.*)$')
    if not last or not expired(last, s.now) then break end
    fields[i], states[i] = 'r:' .. id, ended
  end
  if #fields == 0 then return end
  local is, over, unknown = redis.call('HMGET', s.records, unpack(fields)), {}, 0
  for i = 1, #fields do
    if is[i] and is[i]:sub(1, 1) == states[i] then
      over[#over + 1] = fields[i]
      if is[i]:sub(1, 8) == 'C;0;0;0;' then unknown = unknown + 1 end -- see forbids in acts.lua
    end
  end
  for _ = 1, #fields do redis.call('LPOP', s.endings) end
  if #over == 0 then return end
  s.requests = s.requests - redis.call('HDEL', s.records, unpack(over))
  count()
  s.fields = s.requests
  if unknown > 0 then redis.call('HINCRBY', s.stock, 'forbidden', 0 - unknown) end
end

-- reap ends holds whose time is over, at most so many. It is complete in itself, whatever the script does next. It returns nil,
-- or the reply that says what is wrong.
local function reap(most)
  if s.waiting == 0 then return end
  local due = redis.call('ZRANGE', s.holds, '-inf', elapsed(s.now), 'BYSCORE', 'LIMIT', 0, most)
  if #due == 0 then return end
  local ended, lapsed, n = {}, {}, 0
  for i, id in ipairs(due) do
    local record = redis.call('HGET', s.records, 'r:' .. id)
    local r = record and parse(record)
    if not r or r.state ~= 'H' then return {-1, -1, 0} end
    r.state, ended[i], lapsed[i], n = 'E', r, 'E;' .. id, n + r.n
  end
  if n > s.held then return {-1, -1, 0} end
  for i, id in ipairs(due) do log_entry('expired', '0', ended[i].n, ended[i].claimant, id) end
  free()
  append_ledger()
  note_endings(lapsed)
  for i, id in ipairs(due) do
    redis.call('ZREM', s.holds, id)
    redis.call('HSET', s.records, 'r:' .. id, written(ended[i]))
    if redis.call('HINCRBY', s.records, 'u:' .. ended[i].claimant, digits(0 - ended[i].n)) == 0 then
      s.requests = s.requests - redis.call('HDEL', s.records, 'u:' .. ended[i].claimant)
    end
  end
  local before = s.limit - s.sold - s.held
  s.held, s.waiting = s.held - n, s.waiting - #due
  count()
  follow(before)
  endless(s.records)
  s.fields, s.members = s.requests, s.waiting
end

-- reap_more is the reply in place of "sold out" and "the user's limit" while there are still holds whose time is over, because they
-- were too many for one reap. It ends some of them, as if this call had decided nothing yet, and the caller calls again. It is nil if there
-- are none, or the reply that says what is wrong.
local function reap_more()
  if s.stored.waiting == 0 or redis.call('ZCOUNT', s.holds, '-inf', elapsed(s.now)) == 0 then return end
  local is = s.stored
  s.sold, s.held, s.seq, s.recorded, s.requests, s.waiting, s.serial = is.sold, is.held, is.seq, is.recorded, is.requests, is.waiting, is.serial
  s.lines = {}
  return reap(1024) or {-12, 0, 0}
end

-- rare is the functions above, by their names. The server makes every function anew in each run, and to make these takes it as long as
-- an act; so these are made when one is needed.
local function rare()
-- libraries
  return {remove = remove, ends = ends, orphaned_records = orphaned_records, mark = mark, follow = follow, touch = touch, forget = forget, reap = reap, reap_more = reap_more}
end
