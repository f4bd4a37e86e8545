package stock_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// A new claimant each time: every claim is granted.
func BenchmarkClaim(b *testing.B) {
	s := opened(b, on(b, redistest.Start(b).Client(b), patient), "s", int64(1<<53-1))
	var n atomic.Int64
	both(b, func() error { _, err := s.Claim(ctx, strconv.FormatInt(n.Add(1), 10)); return err })
}

func BenchmarkClaimSoldOut(b *testing.B) {
	s := opened(b, on(b, redistest.Start(b).Client(b), patient), "s", 1)
	var n atomic.Int64
	both(b, func() error { _, err := s.Claim(ctx, strconv.FormatInt(n.Add(1), 10)); return err })
}

// The smallest script that grants one unit to a claimant, sent as cheaply as rueidis can: what Claim's care costs.
func BenchmarkRawClaimScript(b *testing.B) {
	c := redistest.Start(b).Client(b)
	lua := rueidis.NewLuaScript(`
local o = redis.call('HGET', KEYS[2], ARGV[1])
if o then return o end
local r = redis.call('HMGET', KEYS[1], 'limit', 'sold')
if tonumber(r[2] or 0) >= tonumber(r[1] or 0) then return 0 end
local n = redis.call('HINCRBY', KEYS[1], 'sold', 1)
redis.call('HSET', KEYS[2], ARGV[1], n)
return n`)
	require.NoError(b, c.Do(ctx, c.B().Hset().Key("{s}").FieldValue().FieldValue("limit", dec(int64(1<<53-1))).Build()).Error())
	var n atomic.Int64
	both(b, func() error {
		return lua.Exec(ctx, c, []string{"{s}", "{s}:u"}, []string{strconv.FormatInt(n.Add(1), 10)}).Error()
	})
}
