package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// The floors are what a program would write by itself in place of redlatch, as short as they can be. Sales are
// idempotent, without a limit for a claimant, and nothing ends what is held.

// Op is the n-th call of a floor; n is another number for each.
type Op func(ctx context.Context, n int64) error

var (
	takeScript = rueidis.NewLuaScript("return redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2])")
	dropScript = rueidis.NewLuaScript("if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end " +
		"return 0")
)

// RawLock is the smallest lock that excludes and is released only by its holder. A waiter asks again at once.
func RawLock(c rueidis.Client, lease time.Duration) Acquire {
	id, px := rand.Text(), strconv.FormatInt(lease.Milliseconds(), 10)
	var n atomic.Int64
	return func(ctx context.Context, name string) (Release, error) {
		keys, owner := []string{name}, fmt.Sprintf("%s:%d", id, n.Add(1))
		for {
			err := takeScript.Exec(context.WithoutCancel(ctx), c, keys, []string{owner, px}).Error()
			if err == nil {
				break
			}
			if !rueidis.IsRedisNil(err) {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		return func(ctx context.Context) error {
			n, err := dropScript.Exec(ctx, c, keys, []string{owner}).AsInt64()
			if err == nil && n != 1 {
				err = errors.New("the lock was not ours any more")
			}
			return err
		}, nil
	}
}

// RawClaim claims a unit for a new claimant each time.
func RawClaim(ctx context.Context, c rueidis.Client) (Op, error) {
	script := rueidis.NewLuaScript(claimScript)
	return func(ctx context.Context, n int64) error {
		return script.Exec(ctx, c, []string{"{s}", "{s}:u"}, []string{strconv.FormatInt(n, 10)}).Error()
	}, c.Do(ctx, c.B().Hset().Key("{s}").FieldValue().FieldValue("limit", "1000000000").Build()).Error()
}

// RawReserve holds a unit under a new id each time, and sells it.
func RawReserve(ctx context.Context, c rueidis.Client) (Op, error) {
	hold, confirm := rueidis.NewLuaScript(reserveScript), rueidis.NewLuaScript(confirmScript)
	keys := []string{"{s}", "{s}:r", "{s}:h"}
	return func(ctx context.Context, n int64) error {
		id := strconv.FormatInt(n, 10)
		if err := hold.Exec(ctx, c, keys, []string{id, id, "1", "1763000000000"}).Error(); err != nil {
			return err
		}
		return confirm.Exec(ctx, c, keys, []string{id}).Error()
	}, c.Do(ctx, c.B().Hset().Key("{s}").FieldValue().FieldValue("left", "1000000000").Build()).Error()
}

// RawLimit asks for a unit of a rate limit, with that many µs between two units.
func RawLimit(c rueidis.Client, spacing, burst int64) func(ctx context.Context, key string) (allowed bool, err error) {
	script := rueidis.NewLuaScript(limitScript)
	args := []string{strconv.FormatInt(spacing, 10), strconv.FormatInt(burst, 10)}
	return func(ctx context.Context, key string) (bool, error) {
		v, err := script.Exec(ctx, c, []string{key}, args).AsIntSlice()
		return err == nil && v[0] == 1, err
	}
}

const (
	// limitScript is a rate limit by the generic cell rate algorithm, as its textbook has it. KEYS: the limit, the
	// theoretical arrival time in µs. ARGV: µs between two units, the burst.
	limitScript = `
local t = redis.call('TIME')
local now, spacing = t[1] * 1000000 + t[2], tonumber(ARGV[1])
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + spacing
local wait = at - now - spacing * ARGV[2]
if wait > 0 then return {0, wait} end
redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000))
return {1, 0}`
	// claimScript grants one unit to a claimant, and says so again when asked again. KEYS: the stock, a hash with its
	// limit; the claimants. ARGV: the claimant.
	claimScript = `
local o = redis.call('HGET', KEYS[2], ARGV[1])
if o then return o end
local r = redis.call('HMGET', KEYS[1], 'limit', 'sold')
if tonumber(r[2] or 0) >= tonumber(r[1] or 0) then return 0 end
local n = redis.call('HINCRBY', KEYS[1], 'sold', 1)
redis.call('HSET', KEYS[2], ARGV[1], n)
return n`
	// reserveScript holds units under an id. KEYS: the stock, a hash with the units left; the records; the holds. ARGV:
	// the id, the claimant, how many, the deadline.
	reserveScript = `
local r = redis.call('HGET', KEYS[2], ARGV[1])
if r then return {2, 0} end
local n = tonumber(ARGV[3])
if tonumber(redis.call('HGET', KEYS[1], 'left')) < n then return {3, 0} end
redis.call('HINCRBY', KEYS[1], 'left', -n)
redis.call('HSET', KEYS[2], ARGV[1], 'H;' .. ARGV[3] .. ';' .. ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
return {1, 0}`
	// confirmScript sells the held units. KEYS: as of reserveScript. ARGV: the id.
	confirmScript = `
local r = redis.call('HGET', KEYS[2], ARGV[1])
if not r then return {0, 0} end
if r:sub(1, 1) == 'G' then return {2, tonumber(r:match('%d+'))} end
local o = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HSET', KEYS[2], ARGV[1], 'G;' .. o .. r:sub(2))
redis.call('ZREM', KEYS[3], ARGV[1])
return {1, o}`
)
