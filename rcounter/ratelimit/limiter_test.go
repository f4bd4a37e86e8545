package ratelimit_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/stretchr/testify/require"
)

// arrivals is the textbook's virtual scheduling algorithm (ITU-T I.371), in exact fractions: the other form of what
// the limiter does. Times are microseconds.
type arrivals struct {
	theoretical *big.Rat // arrival time
	spacing     *big.Rat
	tolerance   *big.Rat
	burst       int64
}

func newArrivals(o ratelimit.LimiterOptions) *arrivals {
	spacing := big.NewRat(o.Per.Microseconds(), o.Rate)
	return &arrivals{theoretical: new(big.Rat), spacing: spacing, burst: o.Burst,
		tolerance: new(big.Rat).Mul(spacing, big.NewRat(o.Burst, 1))}
}

func (a *arrivals) next(now int64, n int64) *big.Rat {
	t := new(big.Rat).SetInt64(now)
	if a.theoretical.Cmp(t) > 0 {
		t.Set(a.theoretical)
	}
	return t.Add(t, new(big.Rat).Mul(a.spacing, big.NewRat(n, 1)))
}

// ceil is r rounded up, at least 0.
func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return max(0, q.Int64())
}

// allow is the whole answer at now.
func (a *arrivals) allow(now, n int64) ratelimit.Admission {
	after := a.next(now, n)
	wait := ceil(new(big.Rat).Sub(after, new(big.Rat).Add(new(big.Rat).SetInt64(now), a.tolerance)))
	ok := wait == 0
	if ok && n > 0 {
		a.theoretical = after
	}
	stands := a.next(now, 0)
	backlog := new(big.Rat).Sub(stands, new(big.Rat).SetInt64(now))
	free := new(big.Rat).Quo(new(big.Rat).Sub(a.tolerance, backlog), a.spacing)
	r := ratelimit.Admission{Allowed: ok, N: n, Remaining: max(0, new(big.Int).Div(free.Num(), free.Denom()).Int64()),
		ResetAfter: time.Duration(ceil(backlog)) * time.Microsecond}
	if n == 0 {
		r.Allowed = r.Remaining > 0
	} else if !ok {
		r.N = 0
		r.RetryAfter = time.Duration(wait) * time.Microsecond
	}
	return r
}

// allow takes n units; 0 looks.
func allow(l *ratelimit.Limiter, key string, n int64) (ratelimit.Admission, error) {
	if n == 0 {
		return l.Peek(ctx, key)
	}
	return l.Allow(ctx, key, n)
}

func rates(rnd *rand.Rand) ratelimit.LimiterOptions {
	o := ratelimit.LimiterOptions{Rate: 1 + rnd.Int64N(20), Per: time.Duration(1+rnd.IntN(3_000_000)) * time.Microsecond,
		Burst: 1 + rnd.Int64N(6)}
	switch rnd.IntN(4) {
	case 0:
		o.Rate = 1 + rnd.Int64N(1_000_000_000)
	case 1:
		o.Rate, o.Per = 1+rnd.Int64N(3), time.Hour
	}
	return o
}

func TestLimiter_RandomCalls_IsGCRAToTheMicrosecond(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	rig.OverWires(t, 1, func(t *testing.T, srv *redistest.Server, wire rueidis.Client, rnd *rand.Rand, _ string) {
		raw, c := srv.Client(t), on(t, wire, patient)
		at := time.Now().Truncate(time.Millisecond)
		for i := range redistest.Sized(4, 4, 8) {
			o := rates(rnd)
			l := c.Limiter("l"+strconv.Itoa(i), o)
			models := map[string]*arrivals{"": newArrivals(o), "a": newArrivals(o)}
			spacing := o.Per.Microseconds() / o.Rate
			for range 40 {
				key := []string{"", "a"}[rnd.IntN(2)]
				at = at.Add(time.Duration(rnd.Int64N(2*spacing+3)) * time.Microsecond)
				srv.Embedded.SetTime(at)
				n := rnd.Int64N(o.Burst + 1)
				got := redistest.NoError(allow(l, key, n))(t)
				require.Equal(t, models[key].allow(at.UnixMicro(), n), got, "%+v, n %d", o, n)
				for _, k := range keys(t, raw) {
					require.NotEqualValues(t, -1, number(t, raw, "PTTL", k), "%q has no end", k)
				}
			}
		}
		srv.Embedded.SetTime(at.Add(1000 * 24 * time.Hour))
		require.Empty(t, keys(t, raw), "limits nobody has come to for a while cost nothing")
	})
}

// nowhere is a client that nothing may be sent through.
type nowhere struct{ rueidis.Client }

func (nowhere) Mode() rueidis.ClientMode { return rueidis.ClientModeStandalone }

func TestWait_CannotBeInTime_TakesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		o := ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 2}
		l := c.Limiter("l", o)
		require.NoError(t, only(l.Wait(ctx, "k", 2)))
		before := redistest.NoError(l.Peek(ctx, "k"))(t)
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for range 3 {
			limited, err := l.Wait(short, "k", 1)
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			require.ErrorContains(t, err, `"k" of "l"`)
			require.False(t, limited.Allowed)
			require.InDelta(t, time.Hour, limited.RetryAfter, float64(time.Minute))
		}
		after := redistest.NoError(l.Peek(ctx, "k"))(t)
		require.LessOrEqual(t, after.ResetAfter, before.ResetAfter)
		require.Zero(t, after.Remaining)
		require.NoError(t, func() error { _, err := l.Allow(ctx, "k", 1); return err }())
		// Beyond what the level can count: refused too, not rounded. The bucket takes more than an hour to fill, so that what
		// a busy machine takes does not count.
		const most = 1 << 52 / 1_000_000
		huge := c.Limiter("huge", ratelimit.LimiterOptions{Rate: 1_000_000, Burst: most})
		require.NoError(t, only(huge.Wait(ctx, "", most)))
		long, cancel := context.WithTimeout(ctx, 24*time.Hour)
		var wg sync.WaitGroup
		wg.Go(func() { only(huge.Wait(long, "", most)) })
		redistest.Eventually(t, time.Minute, "another waits", func() bool {
			a := redistest.NoError(huge.Peek(ctx, ""))(t)
			return a.ResetAfter > 2*time.Hour
		})
		stop := time.AfterFunc(time.Minute, cancel) // of one that is not refused
		require.ErrorIs(t, only(huge.Wait(long, "", most)), ratelimit.ErrLimited)
		stop.Stop()
		cancel()
		wg.Wait()
	})
}

func TestWait_ServerSilent_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, srv.Client(t), ratelimit.Options{CallTimeout: 40 * time.Second, AllowTimeout: 10 * time.Second})
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	require.NoError(t, only(l.Wait(ctx, "", 1)))
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- only(l.Wait(waiting, "", 1)) }()
	taken := func() time.Duration {
		a := redistest.NoError(l.Peek(ctx, ""))(t)
		return a.ResetAfter.Round(time.Hour)
	}
	redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return taken() == 2*time.Hour })
	must(t, admin, "PING")
	srv.Stop(t)
	defer srv.Process.Signal(redistest.SigCont)
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second): // half of what a call may take
		t.Fatal("it waits for the server")
	}
	srv.Resume(t)
	redistest.Eventually(t, 30*time.Second, "its unit is given back", func() bool { return taken() == time.Hour })
}

func TestLimiter_ClockSetBack_StaysOpen(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(at)
	l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Burst: 2})
	redistest.NoError(l.Allow(ctx, "k", 2))(t)
	at = at.Add(-time.Hour)
	srv.Embedded.SetTime(at)
	a := redistest.NoError(l.Allow(ctx, "k", 1))(t)
	require.False(t, a.Allowed)
	require.Equal(t, time.Second, a.RetryAfter)
	require.Equal(t, 2*time.Second, a.ResetAfter)
	srv.Embedded.SetTime(at.Add(time.Second))
	a = redistest.NoError(l.Allow(ctx, "k", 1))(t)
	require.True(t, a.Allowed, "a second is a second again")
}

func TestLimiter_OtherOptions_KeepWhatWasTaken(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		was := c.Limiter("l", ratelimit.LimiterOptions{Rate: 10, Per: time.Hour, Burst: 10})
		redistest.NoError(was.Allow(ctx, "k", 8))(t)
		is := c.Limiter("l", ratelimit.LimiterOptions{Rate: 4, Per: 30 * time.Minute, Burst: 10})
		a := redistest.NoError(is.Peek(ctx, "k"))(t)
		require.EqualValues(t, 2, a.Remaining)
		require.InDelta(t, time.Hour, a.ResetAfter, float64(time.Minute), "eight units at eight an hour")
		a = redistest.NoError(is.Allow(ctx, "k", 2))(t)
		require.True(t, a.Allowed)
		a, err := c.Limiter("l", ratelimit.LimiterOptions{Rate: 4, Per: 30 * time.Minute, Burst: 5}).Allow(ctx, "k", 1)
		require.NoError(t, err)
		require.False(t, a.Allowed)
		require.InDelta(t, 45*time.Minute, a.RetryAfter, float64(time.Minute), "until 4 of the 10 count")
		require.Zero(t, a.Remaining)
	})
}

func TestLimiters_Cluster_SpreadTheirKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 2})
	for i := range 60 {
		for n := range 3 {
			a := redistest.NoError(l.Allow(ctx, fmt.Sprintf("user %d", i), 1))(t)
			require.Equal(t, n < 2, a.Allowed)
		}
	}
	for _, addr := range srv.Addrs { // the keys of one limiter are spread
		one := redistest.NoError(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true}))(t)
		require.Greater(t, len(keys(t, one)), 5)
		one.Close()
	}
}

func TestWait_Turn_IsSleptForExactly(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		l := on(t, servers[0].Client(t), patient).Limiter("l",
			ratelimit.LimiterOptions{Rate: 4, Burst: 2})
		began := time.Now()
		waited := func(want time.Duration, key string, n int64) {
			t.Helper()
			require.NoError(t, only(l.Wait(ctx, key, n)))
			require.Equal(t, want, time.Since(began).Round(10*time.Millisecond))
		}
		for _, want := range []time.Duration{0, 0, 250, 500, 750} {
			waited(want*time.Millisecond, "", 1)
		}
		waited(1250*time.Millisecond, "", 2)      // two units are two spacings
		waited(1250*time.Millisecond, "other", 2) // which has a limit of its own

		// those who wait at the same time have turns one after the other
		var mu sync.Mutex
		var turns []time.Duration
		var wg sync.WaitGroup
		began = time.Now()
		for range 4 {
			wg.Go(func() {
				if only(l.Wait(ctx, "", 1)) == nil {
					mu.Lock()
					turns = append(turns, time.Since(began).Round(10*time.Millisecond))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond,
			time.Second}, turns)
	})
}

// Names and keys of one limiter are kept apart, whatever they contain, and Reset ends what counts of a key.
func TestLimiterKeys_AreApart_AndReset(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	pairs := [][2]string{{"a", ""}, {"a", "b"}, {"a", "b:c"}, {"a:b", "c"}, {"a:b:c", ""}, {"a:b", ""}, {"a", "b}:q1"},
		{"a", "\u00ff\x01"}, {"a", "{x}"}, {"a", "x"},
		{"a", "{x}:y"}, {"a:b", "{x}"}, {"a", "b:{x}"}, {"a", "{}"}, {"a", "{"}}
	for i, o := range []ratelimit.LimiterOptions{{Rate: 1, Per: time.Hour},
		{Rate: 1, Per: time.Hour, Algorithm: ratelimit.SlidingWindow},
		{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year}} {
		for _, want := range []bool{true, false} {
			for _, p := range pairs {
				a := redistest.NoError(c.Limiter(p[0], o).AllowAtMost(ctx, p[1], 1))(t)
				require.Equal(t, []bool{want, want, !want}, []bool{a.Allowed, a.N == 1, a.RetryAfter > 0}, "%q", p)
			}
		}
		if i == 0 {
			require.Len(t, keys(t, srv.Client(t)), len(pairs))
		}
		for _, p := range pairs {
			require.NoError(t, c.Limiter(p[0], o).Reset(ctx, p[1]))
			a := redistest.NoError(c.Limiter(p[0], o).Peek(ctx, p[1]))(t)
			require.True(t, a.Allowed, "%q", p)
		}
	}
	must(t, srv.Client(t), "SET", "rc:{z}:q1", "something else")
	_, err := c.Limiter("z", ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "", 1)
	require.ErrorContains(t, err, "is not a rate limit")
}
