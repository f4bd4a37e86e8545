package rig

import (
	"strconv"
	"strings"
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
	return 100_000
}

// Grown writes records into a hash that is there, as fast as the server can.
func Grown(t testing.TB, c rueidis.Client, key string, n int64) {
	t.Helper()
	for from := int64(0); from < n; from += 50_000 {
		Must(t, c, "EVAL", `for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], ':user-' .. string.format('%.0f', i), i .. ';AAAAAAAA') end`,
			"1", key, strconv.FormatInt(from+1, 10), strconv.FormatInt(min(from+50_000, n), 10))
	}
}

// mainThread is how much processor time the thread that serves the clients of a server has used, however busy the
// machine is.
func mainThread(t testing.TB, c rueidis.Client) (used time.Duration) {
	t.Helper()
	info, err := c.Do(ctx, c.B().Info().Section("cpu").Build()).ToString()
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			s, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			used += time.Duration(s * float64(time.Second))
			found++
		}
	}
	require.Equal(t, 2, found, info)
	return used
}

// spent is how much of it was used until done, which is asked seldom, so that asking is little of it.
func spent(t testing.TB, c rueidis.Client, done func() bool) time.Duration {
	t.Helper()
	before := mainThread(t, c)
	redistest.Eventually(t, 60*time.Second, "it is over", func() bool {
		time.Sleep(30 * time.Millisecond)
		return done()
	})
	return mainThread(t, c) - before
}

// StallsLess holds the time that the server's one thread for clients works while big is freed against that while it
// frees a hash of as many Records by its expiry. No client can be kept waiting for longer than that.
func StallsLess(t *testing.T, srv *redistest.Server, big func(t *testing.T) (freed func() bool)) {
	admin := srv.Client(t)
	Must(t, admin, "CONFIG", "SET", "lazyfree-lazy-expire", "no") // as it is by default but in Valkey 8 and later
	Must(t, admin, "HSET", "big", "", "")
	Grown(t, admin, "big", Records())
	Must(t, admin, "PEXPIRE", "big", "200")
	expires := spent(t, admin, func() bool { return Number(t, admin, "DBSIZE") == 0 })
	// The server works for some ms while it is asked, and Valkey 8.1 frees a hash of 100,000 fields within 8.
	bound := max(expires/2, 10*time.Millisecond)
	var took time.Duration
	for range 5 {
		took = spent(t, admin, big(t))
		t.Logf("%d records: expiry of a hash %v of work, this %v: x%.3f", Records(), expires, took,
			float64(took)/float64(expires))
		if took < bound {
			return
		}
	}
	require.Less(t, took, bound)
}
