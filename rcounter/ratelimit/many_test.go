package ratelimit_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// A key costs memory while its units count and nothing afterwards, and nobody waits long for the end of very many. In
// full, a million keys.
func TestVeryManyKeysCostMemoryOnlyWhileTheyCount(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	count := redistest.Sized(2_000, 6_000, 1_000_000)
	c := on(t, srv.Client(t), patient)
	memory := func() int64 {
		text, err := raw(admin, "INFO", "memory").ToString()
		require.NoError(t, err)
		_, rest, _ := strings.Cut(text, "used_memory:")
		n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 10, 64)
		require.NoError(t, err)
		return n
	}
	_, err := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "warm", 1)
	require.NoError(t, err)
	before, began := memory(), time.Now()
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: 20 * time.Minute})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 128 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(count); n = next.Add(1) {
				a, err := l.Allow(ctx, "user:"+strconv.FormatInt(1_000_000_000+n, 10), 1)
				if err != nil || !a.Allowed {
					t.Error(a, err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	each := (memory() - before) / int64(count)
	require.Less(t, each, int64(300), "bytes a key")

	// All of them end at one time; a bystander pings meanwhile. In one script a busy machine would not answer in time.
	end, cursor := time.Now().Add(300*time.Millisecond+time.Duration(count)*20*time.Microsecond), "0"
	for again := true; again; again = cursor != "0" {
		left := max(1, time.Until(end).Milliseconds())
		cursor, err = raw(admin, "EVAL", `
local r = redis.call('SCAN', ARGV[1], 'COUNT', 10000)
for _, k in ipairs(r[2]) do redis.call('PEXPIRE', k, ARGV[2]) end
return r[1]`, "0", cursor, strconv.FormatInt(left, 10)).ToString()
		require.NoError(t, err)
	}
	worst := pingUntil(t, admin, func() bool { return number(t, admin, "DBSIZE") == 0 })
	t.Logf("%d keys in %v, %d bytes each; while all expire a PING takes %v at most", count, took.Round(time.Millisecond),
		each, worst)
}

// pingUntil pings until done says so, and returns the longest time that it took.
func pingUntil(t *testing.T, c rueidis.Client, done func() bool) (worst time.Duration) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); !done(); {
		require.True(t, time.Now().Before(until), "they do not expire")
		for range 20 {
			began := time.Now()
			must(t, c, "PING")
			worst = max(worst, time.Since(began))
		}
	}
	return worst
}
