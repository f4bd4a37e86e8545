package redistest

// What a program would write by itself in place of a stock: idempotent, without a limit for a claimant, and nothing
// ends what is held; and in place of a rate limiter. Benchmarks compare with them.
const (
	// PlainLimit is a rate limit by the generic cell rate algorithm, as its textbook has it. KEYS: the limit, the
	// theoretical arrival time in µs. ARGV: µs between two units, the burst.
	PlainLimit = `
local t = redis.call('TIME')
local now, spacing = t[1] * 1000000 + t[2], tonumber(ARGV[1])
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + spacing
local wait = at - now - spacing * ARGV[2]
if wait > 0 then return {0, wait} end
redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000))
return {1, 0}`
	// PlainClaim grants one unit to a claimant, and says so again when asked again. KEYS: the stock, a hash with its
	// limit; the claimants. ARGV: the claimant.
	PlainClaim = `
local o = redis.call('HGET', KEYS[2], ARGV[1])
if o then return o end
local r = redis.call('HMGET', KEYS[1], 'limit', 'sold')
if tonumber(r[2] or 0) >= tonumber(r[1] or 0) then return 0 end
local n = redis.call('HINCRBY', KEYS[1], 'sold', 1)
redis.call('HSET', KEYS[2], ARGV[1], n)
return n`
	// PlainReserve holds units under an id. KEYS: the stock, a hash with what is left; the records; the holds. ARGV: the
	// id, the claimant, how many, the deadline.
	PlainReserve = `
local r = redis.call('HGET', KEYS[2], ARGV[1])
if r then return {2, 0} end
local n = tonumber(ARGV[3])
if tonumber(redis.call('HGET', KEYS[1], 'left')) < n then return {3, 0} end
redis.call('HINCRBY', KEYS[1], 'left', -n)
redis.call('HSET', KEYS[2], ARGV[1], 'H;' .. ARGV[3] .. ';' .. ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
return {1, 0}`
	// PlainConfirm sells what is held. KEYS: those of PlainReserve. ARGV: the id.
	PlainConfirm = `
local r = redis.call('HGET', KEYS[2], ARGV[1])
if not r then return {0, 0} end
if r:sub(1, 1) == 'G' then return {2, tonumber(r:match('%d+'))} end
local o = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HSET', KEYS[2], ARGV[1], 'G;' .. o .. r:sub(2))
redis.call('ZREM', KEYS[3], ARGV[1])
return {1, o}`
)
