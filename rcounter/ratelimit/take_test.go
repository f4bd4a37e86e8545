package ratelimit_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// kinds are limits of every algorithm.
func kinds(rnd *rand.Rand) ratelimit.LimiterOptions {
	o := rates(rnd)
	switch rnd.IntN(4) {
	case 0:
		return ratelimit.LimiterOptions{Rate: 1 + o.Burst, Per: o.Per, Algorithm: ratelimit.SlidingWindow}
	case 1:
		return ratelimit.LimiterOptions{Rate: 1 + o.Burst, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Minute}
	}
	return o
}

// most is how many units pass at once.
func most(o ratelimit.LimiterOptions) int64 {
	return max(o.Burst, 0) + map[bool]int64{true: o.Rate}[o.Burst == 0]
}

// Requests in one call are answered as one after the other, whatever their limits, and a second run of the call answers
// the same.
func TestRequests_OneCall_AreAnsweredOneAfterTheOther(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for wire, wrap := range map[string]func(c rueidis.Client) rueidis.Client{
		"once":  func(c rueidis.Client) rueidis.Client { return c },
		"twice": func(c rueidis.Client) rueidis.Client { return twice{Client: c} },
	} {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Embedded(t)
			c := on(t, wrap(srv.Client(t)), patient)
			seed := redistest.Seeds(t, 1)[0]
			rnd := rand.New(rand.NewPCG(seed, 1))
			at := time.Now().Truncate(time.Minute)
			for round := range redistest.Sized(10, 10, 2000) {
				var limiters []*ratelimit.Limiter
				var models []*ratelimit.Model
				var options []ratelimit.LimiterOptions
				for i := range 3 {
					o := kinds(rnd)
					l := c.Limiter("l"+strconv.Itoa(round)+"-"+strconv.Itoa(i), o)
					limiters, models, options = append(limiters, l), append(models, l.NewModel()), append(options, o)
				}
				for range 12 {
					at = at.Add(time.Duration(rnd.Int64N(2_000_000)) * time.Microsecond)
					srv.Embedded.SetTime(at)
					var wanted []ratelimit.Wanted
					var want [][]ratelimit.Admission
					single := rnd.IntN(2) == 0 // each of one limit, often several alike
					var order []int
					var same int64
					for range 1 + rnd.IntN(8) {
						again := order != nil && single && rnd.IntN(3) > 0
						w := ratelimit.Wanted{UpTo: rnd.IntN(3) == 0}
						if again {
							w.UpTo = wanted[len(wanted)-1].UpTo != (rnd.IntN(6) == 0)
						} else if order = rnd.Perm(3); w.UpTo || single {
							order = order[:1]
						} else {
							order = order[:1+rnd.IntN(3)]
						}
						passes := true
						for _, i := range order {
							n := rnd.Int64N(most(options[i]) + 1)
							if small := rnd.Int64N(3); single && !again && small <= n {
								n = small // several such pass
							} else if again {
								n = same
							}
							same = n
							if w.UpTo {
								n = max(1, n)
							}
							w.Takes = append(w.Takes, ratelimit.Take{Limiter: limiters[i], Key: "k", N: n})
							passes = passes && (w.UpTo || models[i].Take(at.UnixMicro(), 0, false).Remaining >= n)
						}
						var answers []ratelimit.Admission
						for j, i := range order {
							n := w.Takes[j].N
							a := models[i].Take(at.UnixMicro(), 0, false)
							switch {
							case passes:
								a = models[i].Take(at.UnixMicro(), n, w.UpTo)
							case n > a.Remaining:
								a = models[i].Take(at.UnixMicro(), n, false)
							}
							answers = append(answers, a)
						}
						wanted, want = append(wanted, w), append(want, answers)
					}
					got := redistest.NoError(c.TakeTogether(ctx, wanted...))(t)
					if wire == "once" {
						require.Equal(t, want, got, "seed %d, %+v", seed, options)
						continue
					}
					for i := range want {
						// what remains is said as of the end of the call, and so is which limit refused
						wants, gets := true, true
						for j := range want[i] {
							wants, gets = wants && want[i][j].Allowed, gets && got[i][j].Allowed
							require.Equal(t, want[i][j].N, got[i][j].N, "seed %d, %+v", seed, options)
						}
						require.Equal(t, wants, gets, "seed %d, %+v", seed, options)
					}
				}
			}
		})
	}
}

func TestRequests_Crowd_ShareCallsAndTakeNoUnitTwice(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const burst, callers, each = 400, 32, 40
		var rnd atomic.Uint64
		for wire, client := range map[string]rueidis.Client{
			"calm":  srv.Client(t),
			"twice": twice{Client: srv.Client(t)},
			"lossy": newLossy(t, srv, func() bool { return rnd.Add(1)%5 == 0 }),
		} {
			var shares redistest.Shares
			observed := patient
			observed.Observer = shares.Observe
			c := on(t, client, observed)
			o := ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: burst}
			var passed atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := range each {
						a, err := c.Limiter(wire, o).Allow(ctx, []string{"all", strconv.Itoa(i)}[i%2], 1)
						if err != nil {
							t.Error(err)
							return
						}
						if i%2 == 0 && a.Allowed {
							passed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, passed.Load(), int64(burst), wire)
			require.Positive(t, passed.Load(), wire)
			if wire == "calm" {
				require.EqualValues(t, burst, passed.Load())
			}
			calls, requests := shares.Calls.Load(), shares.Requests.Load()
			require.Greater(t, requests, 2*calls, wire)
		}
	})
}

func TestAllow_Alone_SaysThatItsOwnTimeIsOver(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), ratelimit.Options{CallTimeout: time.Minute, AllowTimeout: 100 * time.Millisecond})
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1000})
	allows := map[string]func() error{
		"Allow":       func() error { _, err := l.Allow(ctx, "", 1); return err },
		"AllowAtMost": func() error { _, err := l.AllowAtMost(ctx, "", 1); return err },
		"Peek":        func() error { _, err := l.Peek(ctx, ""); return err },
		"AllowAll":    func() error { _, err := c.AllowAll(ctx, ratelimit.Take{Limiter: l, N: 1}); return err },
	}
	for name, allow := range allows {
		redistest.Eventually(t, 20*time.Second, name+" is answered", func() bool { return allow() == nil })
	}
	srv.Stop(t)
	defer srv.Resume(t)
	for name, allow := range allows {
		for range 2 { // at first in place, because the server answered a moment ago
			err := allow()
			require.ErrorContains(t, err, "no answer within AllowTimeout", name)
			require.NotContains(t, err.Error(), "call timeout", name)
		}
	}
}

func TestAllowAll_KeysOfTwoSlots_AreRefusedUnsent(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	wire := &counting{Client: srv.Client(t)}
	c := on(t, wire, patient)
	l := func(c *ratelimit.Client, name string) *ratelimit.Limiter {
		return c.Limiter(name, ratelimit.LimiterOptions{Rate: 10})
	}
	a, b := l(c, "a"), l(c, "b")
	wire.Sent.Store(0)
	_, err := c.AllowAll(ctx, ratelimit.Take{Limiter: a, Key: "x", N: 1}, ratelimit.Take{Limiter: b, Key: "y", N: 1})
	require.ErrorIs(t, err, errs.ErrInvalidName)
	require.ErrorContains(t, err, `the limits of "x" and "y" are in different slots`)
	require.Zero(t, wire.Sent.Load())
	for _, keys := range [][2]string{{"x", "x"}, {"{x}", "{x}:y"}, {"x", "{x}:y"}, {"a}b", "a}b"}} {
		d, err := c.AllowAll(ctx, ratelimit.Take{Limiter: a, Key: keys[0], N: 1},
			ratelimit.Take{Limiter: b, Key: keys[1], N: 1})
		require.NoError(t, err, keys)
		require.True(t, d.Allowed)
	}
}

// A refusal is not asked for again until it ends, or is trusted no longer; and what gives units back in this process
// ends it.
func TestRefusal_AskedAgain_IsAnsweredByTheProcess(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		wire := &counting{Client: srv.Client(t)}
		o := patient
		o.RefusalTrust = time.Hour
		c := on(t, wire, o)
		l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour})
		for range 2 {
			redistest.NoError(l.Allow(ctx, "k", 1))(t)
		}
		first := redistest.NoError(l.Allow(ctx, "k", 1))(t)
		require.False(t, first.Allowed)
		wire.Sent.Store(0)
		for range 100 {
			a := redistest.NoError(c.Limiter("l", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour}).Allow(ctx, "k", 1))(t)
			require.False(t, a.Allowed)
			require.LessOrEqual(t, a.RetryAfter, first.RetryAfter)
			require.InDelta(t, first.RetryAfter, a.RetryAfter, float64(time.Minute))
			require.InDelta(t, first.ResetAfter, a.ResetAfter, float64(time.Minute))
		}
		require.Zero(t, wire.Sent.Load())
		redistest.NoError(l.Allow(ctx, "k", 2))(t)
		redistest.NoError(c.Limiter("l", ratelimit.LimiterOptions{Rate: 3, Per: time.Hour}).Allow(ctx, "k", 2))(t)
		require.Positive(t, wire.Sent.Load(), "another number, other options")
		redistest.NoError(l.Allow(ctx, "k", 2))(t)
		require.NoError(t, l.Reset(ctx, "k"))
		a := redistest.NoError(l.Allow(ctx, "k", 2))(t)
		require.True(t, a.Allowed)

		brief := patient
		brief.RefusalTrust = time.Millisecond
		l = on(t, srv.Client(t), brief).Limiter("l", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour})
		redistest.NoError(l.Allow(ctx, "k", 2))(t)
		must(t, srv.Client(t), "DEL", l.Key("k"))
		redistest.Eventually(t, 10*time.Second, "the server is asked again", func() bool {
			a := redistest.NoError(l.Allow(ctx, "k", 2))(t)
			return a.Allowed
		})
	})
}
