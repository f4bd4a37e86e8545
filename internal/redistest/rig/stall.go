package rig

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Records is of how many records a test makes something big.
func Records() int64 {
	if redistest.Long() {
		return 1_000_000
	}
	return 200_000
}

// Grown writes records into a hash that is there, as fast as the server can.
func Grown(t testing.TB, c rueidis.Client, key string, n int64) {
	t.Helper()
	for from := int64(0); from < n; from += 50_000 {
		Must(t, c, "EVAL", `for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], ':user-' .. string.format('%.0f', i), i .. ';AAAAAAAA') end`,
			"1", key, strconv.FormatInt(from+1, 10), strconv.FormatInt(min(from+50_000, n), 10))
	}
}

// worstPing is how long the slowest PING of another client takes until done.
func worstPing(t testing.TB, srv *redistest.Server, done func() bool) (worst time.Duration) {
	t.Helper()
	c := srv.Client(t)
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		for {
			select {
			case <-stop:
				result <- worst
				return
			default:
			}
			sent := time.Now()
			if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
				t.Error(err)
			}
			worst = max(worst, time.Since(sent))
		}
	}()
	redistest.Eventually(t, 60*time.Second, "it is over", done)
	close(stop)
	return <-result
}

// StallsLess holds what a bystander's slowest PING is while big is freed against that while the server frees a hash of as many
// Records by its expiry. A busy machine may hold up any PING, but not five times in a row.
func StallsLess(t *testing.T, srv *redistest.Server, big func(t *testing.T) (freed func() bool)) {
	admin := srv.Client(t)
	Must(t, admin, "HSET", "big", "", "")
	Grown(t, admin, "big", Records())
	Must(t, admin, "PEXPIRE", "big", "200")
	expires := worstPing(t, srv, func() bool { return Number(t, admin, "DBSIZE") == 0 })
	var took time.Duration
	for range 5 {
		took = worstPing(t, srv, big(t))
		t.Logf("%d records: expiry of a hash %v, this %v: x%.3f", Records(), expires, took, float64(took)/float64(expires))
		if took < expires/4 {
			return
		}
	}
	require.Less(t, took, expires/4)
}
