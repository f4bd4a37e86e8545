package rcounter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// records is of how many records a test makes something big.
func records() int64 {
	if redistest.Long() {
		return 1_000_000
	}
	return 200_000
}

// grown writes records into a hash that is there, as fast as the server can.
func grown(t testing.TB, c rueidis.Client, key string, n int64) {
	t.Helper()
	for from := int64(0); from < n; from += 50_000 {
		must(t, c, "EVAL", `for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], ':user-' .. string.format('%.0f', i), i .. ';AAAAAAAA') end`,
			"1", key, dec(from+1), dec(min(from+50_000, n)))
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

// stallsLess holds what a bystander's slowest PING is while big is freed against that while the server frees a hash of as many
// records by its expiry. A busy machine may hold up any PING, but not five times in a row.
func stallsLess(t *testing.T, srv *redistest.Server, big func(t *testing.T) (freed func() bool)) {
	admin := srv.Client(t)
	must(t, admin, "HSET", "big", "", "")
	grown(t, admin, "big", records())
	must(t, admin, "PEXPIRE", "big", "200")
	expires := worstPing(t, srv, func() bool { return number(t, admin, "DBSIZE") == 0 })
	var took time.Duration
	for range 5 {
		took = worstPing(t, srv, big(t))
		t.Logf("%d records: expiry of a hash %v, this %v: x%.3f", records(), expires, took, float64(took)/float64(expires))
		if took < expires/4 {
			return
		}
	}
	require.Less(t, took, expires/4)
}

func TestTheEndOfABigStockHoldsNobodyUp(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, admin, exact)
	stallsLess(t, srv, func(t *testing.T) func() bool {
		s := opened(t, c, "s", rcounter.MaxLimit)
		claimed(t, s, "ann")
		grown(t, admin, "rc:{s}:u", records()-1)
		must(t, admin, "HSET", "rc:{s}", "sold", dec(records()), "seq", dec(records()), "recorded", dec(records()))
		// its time is over soon, and a claim gives the keys the ends that are theirs
		must(t, admin, "PERSIST", "rc:{s}:u")
		must(t, admin, "HSET", "rc:{s}", "gone", dec(serverNow(t, admin)+500))
		claimed(t, s, "bob")
		return func() bool {
			_, err := s.Reap(ctx) // as KeepReaped does
			require.NoError(t, err)
			return number(t, admin, "DBSIZE") == 0
		}
	})
}

func TestTheEndOfABigRedPacketHoldsNobodyUp(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, admin, exact)
	stallsLess(t, srv, func(t *testing.T) func() bool {
		p := sent(t, c, "p", packet(10, 2))
		grab(t, p, "ann")
		grown(t, admin, "rc:{p}:g", records()-1)
		must(t, admin, "HSET", "rc:{p}:p", "n", dec(records()+1), "taken", dec(records()))
		// its time is over soon, and a grab gives the keys the ends that are theirs
		must(t, admin, "PERSIST", "rc:{p}:g")
		must(t, admin, "HSET", "rc:{p}:p", "gone", dec(serverNow(t, admin)+500))
		require.True(t, grab(t, p, "bob").Won())
		return func() bool {
			_, err := p.Status(ctx) // as the process does that sent it
			require.NoError(t, err)
			return number(t, admin, "DBSIZE") == 0
		}
	})
}

func grab(t testing.TB, p *rcounter.RedPacket, user string) rcounter.Share {
	t.Helper()
	s, err := p.Grab(ctx, user)
	require.NoError(t, err)
	return s
}

// The whole of what AddOnce remembers is forgotten by its turn, and by its expiry, in parts of which the server feels none.
func TestAddOnceHoldsNobodyUpWhenItForgets(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	k := on(t, admin, exact).Counter("k", rcounter.CounterOptions{Remember: time.Hour})
	i0, i1 := k.IDKeys("one")
	stallsLess(t, srv, func(t *testing.T) func() bool {
		must(t, admin, "FLUSHALL")
		_, _, err := k.AddOnce(ctx, "one", 1)
		require.NoError(t, err)
		grown(t, admin, i1, records()) // a part is never so large
		now := serverNow(t, admin)
		must(t, admin, "HSET", i0, "from", dec(now-2*hour))
		must(t, admin, "HSET", i1, "from", dec(now-3*hour))
		return func() bool {
			must(t, admin, "HDEL", i0, ":one")
			must(t, admin, "HDEL", i1, ":one")
			_, _, err := k.AddOnce(ctx, "one", 1)
			require.NoError(t, err)
			return number(t, admin, "HLEN", i1) < 3
		}
	})
}

func TestTheIDsOfAddOnceEndInPartsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	k := on(t, c, exact).Counter("k", rcounter.CounterOptions{})
	for i := range 2000 {
		_, _, err := k.AddOnce(ctx, dec(int64(i)), 1)
		require.NoError(t, err)
	}
	var ends []int64
	for _, key := range keys(t, c) {
		if key == "k" {
			continue
		}
		require.Less(t, number(t, c, "HLEN", key), int64(2000/64*2), key)
		left := number(t, c, "PTTL", key)
		require.Greater(t, left, int64(hour), "no id is forgotten early")
		ends = append(ends, left)
	}
	slices.Sort(ends)
	require.Len(t, ends, 64)
	require.Greater(t, ends[63]-ends[0], int64(40_000), "ms from the first to the last")
}
