package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
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

func TestARateLimiterIsGCRAToTheMicrosecond(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for wire, wrap := range map[string]func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client{
		"once": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client { return s.Client(t) },
		"twice": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client {
			return twice{Client: s.Client(t)}
		},
		"lossy": func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client {
			return newLossy(t, s, func() bool { return rnd.IntN(3) == 0 })
		},
	} {
		t.Run(wire, func(t *testing.T) {
			srv := redistest.Embedded(t)
			raw := srv.Client(t)
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 1))
			c := on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), patient)
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
					got, err := allow(l, key, n)
					require.NoError(t, err)
					require.Equal(t, models[key].allow(at.UnixMicro(), n), got, "seed %d: %+v, n %d", seed, o, n)
					for _, k := range keys(t, raw) {
						require.NotEqualValues(t, -1, number(t, raw, "PTTL", k), "%q has no end", k)
					}
				}
			}
			srv.Embedded.SetTime(at.Add(1000 * 24 * time.Hour))
			require.Empty(t, keys(t, raw), "limits nobody has come to for a while cost nothing")
		})
	}
}

func TestALimiterOfTheProcessIsTheSameAlgorithm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := on(t, nowhere{}, patient)
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 1))
		for i := range 200 {
			o := rates(rnd)
			o.PerProcess = true
			l := c.Limiter("l"+strconv.Itoa(i), o)
			models := map[string]*arrivals{"": newArrivals(o), "a": newArrivals(o)}
			began := time.Now()
			spacing := o.Per.Microseconds() / o.Rate
			for range 40 {
				key := []string{"", "a"}[rnd.IntN(2)]
				time.Sleep(time.Duration(rnd.Int64N(2*spacing+3)) * time.Microsecond)
				n := rnd.Int64N(o.Burst + 1)
				got, err := allow(l, key, n)
				require.NoError(t, err)
				require.Equal(t, models[key].allow(time.Since(began).Microseconds(), n), got, "seed %d: %+v, n %d", seed, o, n)
			}
		}
	})
}

// nowhere is a client that nothing may be sent through.
type nowhere struct{ rueidis.Client }

func (nowhere) Mode() rueidis.ClientMode { return rueidis.ClientModeStandalone }

// No more pass in any stretch of time than burst and rate allow, whoever asks; and no fewer than a busy machine lets
// them ask for.
func TestNoMorePassThanTheRateFromSeveralProcessesAtOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const rate, burst = 2000, 50
	o := ratelimit.LimiterOptions{Rate: rate, Burst: burst}
	var passed atomic.Int64
	limiters := []*ratelimit.Limiter{on(t, srv.Client(t), patient).Limiter("l", o),
		on(t, srv.Client(t), patient).Limiter("l", o)}
	micros := func() int64 {
		v, err := raw(control, "TIME").AsStrSlice()
		require.NoError(t, err)
		s, _ := strconv.ParseInt(v[0], 10, 64)
		us, _ := strconv.ParseInt(v[1], 10, 64)
		return s*1_000_000 + us
	}
	began := micros()
	var wg sync.WaitGroup
	stop := time.Now().Add(400 * time.Millisecond)
	for i := range 16 {
		wg.Go(func() {
			for time.Now().Before(stop) {
				a, err := limiters[i%2].Allow(ctx, "", 1)
				if err != nil {
					t.Error(err)
					return
				}
				if a.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := micros() - began
	require.LessOrEqual(t, passed.Load(), int64(burst)+took*rate/1_000_000+1)
	require.Positive(t, passed.Load())
}

func TestRetriesNeverLetMorePass(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const burst = 40
		o := ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: burst}
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(1, 2))
		lose := func() bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(3) == 0 }
		var passed atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			l := on(t, newLossy(t, srv, lose), patient).Limiter("l", o)
			wg.Go(func() {
				for range 30 {
					a, err := l.Allow(ctx, "k", 1)
					if err != nil {
						t.Error(err)
						return
					}
					if a.Allowed {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, passed.Load(), int64(burst))
		require.Positive(t, passed.Load())
	})
}

func TestWaitSleepsExactlyUntilItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := on(t, nowhere{}, patient).Limiter("l", ratelimit.LimiterOptions{Rate: 4, Burst: 2, PerProcess: true})
		began := time.Now()
		for _, want := range []time.Duration{0, 0, 250, 500, 750} {
			require.NoError(t, only(l.Wait(ctx, "", 1)))
			require.Equal(t, want*time.Millisecond, time.Since(began))
		}
		require.NoError(t, only(l.Wait(ctx, "", 2)))
		require.Equal(t, 1250*time.Millisecond, time.Since(began), "two units are two spacings")
		require.NoError(t, only(l.Wait(ctx, "other", 2)))
		require.Equal(t, 1250*time.Millisecond, time.Since(began), "another key has a limit of its own")

		// those who wait at the same time have turns one after the other
		var mu sync.Mutex
		var turns []time.Duration
		var wg sync.WaitGroup
		began = time.Now()
		for range 4 {
			wg.Go(func() {
				if only(l.Wait(ctx, "", 1)) == nil {
					mu.Lock()
					turns = append(turns, time.Since(began))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond,
			time.Second}, turns)
	})
}

func TestWaitOnAServerComesNoEarlierThanItsTurnAndAsksOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		wire := &counting{Client: srv.Client(t)}
		l := on(t, wire, patient).Limiter("l", ratelimit.LimiterOptions{Rate: 20, Burst: 1})
		require.NoError(t, only(l.Wait(ctx, "warm", 1)))
		wire.Sent.Store(0)
		began := time.Now()
		for range 4 {
			require.NoError(t, only(l.Wait(ctx, "k", 1)))
		}
		require.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond-time.Millisecond, "three spacings")
		require.EqualValues(t, 4, wire.Sent.Load(), "one call each")
	})
}

func TestAWaitThatCannotBeInTimeTakesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		o := ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 2}
		for _, local := range []bool{false, true} {
			o.PerProcess = local
			l := c.Limiter("l", o)
			require.NoError(t, only(l.Wait(ctx, "k", 2)))
			before, err := l.Peek(ctx, "k")
			require.NoError(t, err)
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for range 3 {
				limited, err := l.Wait(short, "k", 1)
				require.ErrorIs(t, err, ratelimit.ErrLimited)
				require.ErrorContains(t, err, `"k" of "l"`)
				require.False(t, limited.Allowed)
				require.InDelta(t, time.Hour, limited.RetryAfter, float64(time.Minute))
			}
			after, err := l.Peek(ctx, "k")
			require.NoError(t, err)
			require.LessOrEqual(t, after.ResetAfter, before.ResetAfter)
			require.Zero(t, after.Remaining)
			require.NoError(t, func() error { _, err := l.Allow(ctx, "k", 1); return err }())
		}
		// beyond what the level can count: refused too, not rounded
		const most = 1 << 52 / 1_000_000
		for _, local := range []bool{false, true} {
			l := c.Limiter("huge", ratelimit.LimiterOptions{Rate: 1_000_000_000, Burst: most, PerProcess: local})
			require.NoError(t, only(l.Wait(ctx, "", most)))
			brief, cancel := context.WithTimeout(ctx, time.Hour)
			var wg sync.WaitGroup
			wg.Go(func() { only(l.Wait(brief, "", most)) })
			redistest.Eventually(t, 10*time.Second, "another waits", func() bool {
				a, err := l.Peek(ctx, "")
				require.NoError(t, err)
				return a.ResetAfter > 5*time.Second
			})
			time.AfterFunc(300*time.Millisecond, cancel)
			require.ErrorIs(t, only(l.Wait(brief, "", most)), ratelimit.ErrLimited)
			cancel()
			wg.Wait()
		}
	})
}

func TestAWaitGivenUpGivesItsTurnToTheNext(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		for wire, c := range map[string]*ratelimit.Client{"once": on(t, srv.Client(t), patient),
			"twice": on(t, twice{Client: srv.Client(t)}, patient), "local": on(t, nowhere{}, patient)} {
			l := c.Limiter(wire, ratelimit.LimiterOptions{Rate: 1, Per: time.Minute, Burst: 3, PerProcess: wire == "local"})
			stands := func() time.Duration {
				a, err := l.Peek(ctx, "k")
				require.NoError(t, err)
				return a.ResetAfter.Round(time.Minute)
			}
			giveUp := func(then func()) error {
				waiting, cancel := context.WithCancelCause(ctx)
				ended := make(chan error, 1)
				go func() { ended <- only(l.Wait(waiting, "k", 3)) }()
				redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return stands() == 6*time.Minute })
				then()
				cancel(errors.New("gone home"))
				return <-ended
			}
			require.NoError(t, only(l.Wait(ctx, "k", 3)))
			require.Equal(t, 3*time.Minute, stands())
			err := giveUp(func() {})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "gone home")
			// in the background, if the reply was still on its way
			redistest.Eventually(t, 10*time.Second, "they are given back", func() bool { return stands() == 3*time.Minute })

			if wire == "twice" { // what comes between the two copies of a call has them count twice
				continue
			}

			// somebody has come after
			var wg sync.WaitGroup
			other, stop := context.WithCancel(ctx)
			err = giveUp(func() {
				wg.Go(func() { only(l.Wait(other, "k", 1)) })
				redistest.Eventually(t, 10*time.Second, "the other waits", func() bool { return stands() == 7*time.Minute })
			})
			require.ErrorIs(t, err, context.Canceled)
			// its turn is free for the next, and the other keeps its own
			redistest.Eventually(t, 10*time.Second, "the first one's are given back", func() bool {
				brief, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				a, err := l.Wait(brief, "k", 3)
				require.ErrorIs(t, err, ratelimit.ErrLimited)
				return a.RetryAfter <= 3*time.Minute
			})
			stop()
			wg.Wait()
			redistest.Eventually(t, 10*time.Second, "the last one's are given back", func() bool {
				return stands() == 3*time.Minute
			})
		}
	})
}

func TestAWaitEndsWithItsContextThoughTheServerIsSilent(t *testing.T) {
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
		a, err := l.Peek(ctx, "")
		require.NoError(t, err)
		return a.ResetAfter.Round(time.Hour)
	}
	redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return taken() == 2*time.Hour })
	must(t, admin, "PING")
	srv.Stop(t)
	defer srv.Process.Signal(syscall.SIGCONT)
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

func TestAClockSetBackDoesNotCloseTheLimiter(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(at)
	l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Burst: 2})
	_, err := l.Allow(ctx, "k", 2)
	require.NoError(t, err)
	at = at.Add(-time.Hour)
	srv.Embedded.SetTime(at)
	a, err := l.Allow(ctx, "k", 1)
	require.NoError(t, err)
	require.False(t, a.Allowed)
	require.Equal(t, time.Second, a.RetryAfter)
	require.Equal(t, 2*time.Second, a.ResetAfter)
	srv.Embedded.SetTime(at.Add(time.Second))
	a, err = l.Allow(ctx, "k", 1)
	require.NoError(t, err)
	require.True(t, a.Allowed, "a second is a second again")
}

func TestOtherOptionsKeepWhatWasTaken(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		was := c.Limiter("l", ratelimit.LimiterOptions{Rate: 10, Per: time.Hour, Burst: 10})
		_, err := was.Allow(ctx, "k", 8)
		require.NoError(t, err)
		is := c.Limiter("l", ratelimit.LimiterOptions{Rate: 4, Per: 30 * time.Minute, Burst: 10})
		a, err := is.Peek(ctx, "k")
		require.NoError(t, err)
		require.EqualValues(t, 2, a.Remaining)
		require.InDelta(t, time.Hour, a.ResetAfter, float64(time.Minute), "eight units at eight an hour")
		a, err = is.Allow(ctx, "k", 2)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		a, err = c.Limiter("l", ratelimit.LimiterOptions{Rate: 4, Per: 30 * time.Minute, Burst: 5}).Allow(ctx, "k", 1)
		require.NoError(t, err)
		require.False(t, a.Allowed)
		require.InDelta(t, 45*time.Minute, a.RetryAfter, float64(time.Minute), "until 4 of the 10 count")
		require.Zero(t, a.Remaining)
	})
}

func TestNamesAndKeysOfLimitersDoNotMix(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	c := on(t, raw, patient)
	o := ratelimit.LimiterOptions{Rate: 1, Per: time.Hour}
	pairs := [][2]string{{"a", ""}, {"a", "b"}, {"a", "b:c"}, {"a:b", "c"}, {"a:b:c", ""}, {"a:b", ""}, {"a", "b}:q1"},
		{"a", "\u00ff\x01"}, {"a", "{x}"}, {"a", "x"},
		{"a", "{x}:y"}, {"a:b", "{x}"}, {"a", "b:{x}"}, {"a", "{}"}, {"a", "{"}}
	for _, p := range pairs {
		a, err := c.Limiter(p[0], o).Allow(ctx, p[1], 1)
		require.NoError(t, err)
		require.True(t, a.Allowed, "%q", p)
	}
	require.Len(t, keys(t, raw), len(pairs))
	for _, p := range pairs {
		a, err := c.Limiter(p[0], o).Allow(ctx, p[1], 1)
		require.NoError(t, err)
		require.False(t, a.Allowed, "%q", p)
	}
	must(t, raw, "SET", "rc:{z}:q1", "something else")
	_, err := c.Limiter("z", o).Allow(ctx, "", 1)
	require.ErrorContains(t, err, "holds something else")
	for _, make := range [][]string{{"RPUSH", "rc:{z}:q1", "x"}, {"ZADD", "rc:{z}:q1", "1", "x"}} {
		must(t, raw, "DEL", "rc:{z}:q1")
		must(t, raw, make...)
		for _, o := range []ratelimit.LimiterOptions{o, {Rate: 1, Algorithm: ratelimit.SlidingWindow},
			{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day}} {
			_, err = c.Limiter("z", o).Allow(ctx, "", 1)
			require.ErrorIs(t, err, errs.ErrWrongType, make)
		}
		require.ErrorIs(t, only(c.Limiter("z", o).Wait(ctx, "", 1)), errs.ErrWrongType)
	}
}

func TestALimiterOfTheProcessForgetsKeysThatNoLongerCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := on(t, nowhere{}, patient)
		l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, PerProcess: true})
		most := 0
		for i := range 20_000 {
			_, err := l.Allow(ctx, strconv.Itoa(i), 1)
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond) // a hundred count at any time
			most = max(most, c.LocalKeys())
		}
		require.LessOrEqual(t, most, 1024)
	})
}

func TestLimitersWorkInACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 2})
	for i := range 60 {
		for n := range 3 {
			a, err := l.Allow(ctx, fmt.Sprintf("user %d", i), 1)
			require.NoError(t, err)
			require.Equal(t, n < 2, a.Allowed)
		}
	}
	for _, addr := range srv.Addrs { // the keys of one limiter are spread
		one, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		require.Greater(t, len(keys(t, one)), 5)
		one.Close()
	}
}

func TestALimitersBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	wire.Sent.Store(0)
	verbs := func(l *ratelimit.Limiter) map[string]error {
		_, err := l.Allow(ctx, "k", 1)
		_, atMost := l.AllowAtMost(ctx, "k", 1)
		_, peek := l.Peek(ctx, "k")
		_, reserve := l.Reserve(ctx, "k", 1)
		_, all := c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "k", N: 1})
		if l.PerProcess() {
			all = err // refused for another reason
		}
		return map[string]error{"Allow": err, "Wait": only(l.Wait(ctx, "k", 1)), "AllowAtMost": atMost, "Peek": peek,
			"Reserve": reserve, "Reset": l.Reset(ctx, "k"), "AllowAll": all}
	}
	good := ratelimit.LimiterOptions{Rate: 1, Burst: 3}
	for _, name := range []string{"", "a{b", "a\xff", strings.Repeat("x", 64<<10+1)} {
		for verb, err := range verbs(c.Limiter(name, good)) {
			require.ErrorIs(t, err, errs.ErrInvalidName, verb)
		}
	}
	for _, tc := range []struct {
		o    ratelimit.LimiterOptions
		says string
	}{
		{ratelimit.LimiterOptions{}, "Rate is 0"},
		{ratelimit.LimiterOptions{Rate: -1}, "Rate is -1"},
		{ratelimit.LimiterOptions{Rate: 1_000_000_001}, "Rate is 1000000001"},
		{ratelimit.LimiterOptions{Rate: 1, Per: -time.Second}, "Per is -1s"},
		{ratelimit.LimiterOptions{Rate: 1, Per: 1500}, "Per is 1.5µs"},
		{ratelimit.LimiterOptions{Rate: 1, Per: 367 * 24 * time.Hour}, "Per is 8808h0m0s"},
		{ratelimit.LimiterOptions{Rate: 1, Burst: -1}, "Burst is -1"},
		{ratelimit.LimiterOptions{Rate: 1_000_000_000, Per: time.Hour}, "Rate is 1000000000, must be at most 1250999"},
		{ratelimit.LimiterOptions{Rate: 1, Algorithm: "gcra"}, `Algorithm is "gcra"`},
		{ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.SlidingWindow, Burst: 2},
			"Burst is 2, must be 0 with SlidingWindow"},
		{ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow}, `Unit is ""`},
		{ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day, Per: time.Hour},
			"Per is 1h0m0s"},
		{ratelimit.LimiterOptions{Rate: 1, Unit: ratelimit.Day}, `Unit is "Day"`},
		{ratelimit.LimiterOptions{Rate: 1, Zone: time.UTC}, "Zone is UTC"},
		{ratelimit.LimiterOptions{Rate: 1, WhenDown: "open"}, `WhenDown is "open"`},
		{ratelimit.LimiterOptions{Rate: 1, WhenDown: ratelimit.Local}, "Share is 0"},
		{ratelimit.LimiterOptions{Rate: 1, WhenDown: ratelimit.Local, Share: 1.5}, "Share is 1.5"},
		{ratelimit.LimiterOptions{Rate: 1, Share: .5}, "Share is 0.5, must be 0 with Fail"},
		{ratelimit.LimiterOptions{Rate: 1, PerProcess: true, WhenDown: ratelimit.Open}, `WhenDown is "Open"`},
		{ratelimit.LimiterOptions{Rate: 1, PerProcess: true, Stored: true}, "Stored is true"},
		{ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 1_250_999_896_491}, "Burst is"},
		{ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 1<<63 - 1, PerProcess: true},
			"Burst is 9223372036854775807"},
	} {
		for verb, err := range verbs(c.Limiter("l", tc.o)) {
			require.ErrorIs(t, err, errs.ErrInvalidOption, verb)
			require.ErrorContains(t, err, tc.says, verb)
		}
	}
	for _, local := range []bool{false, true} {
		good.PerProcess = local
		l := c.Limiter("l", good)
		for _, n := range []int64{-1, 0, 4} {
			_, err := l.Allow(ctx, "k", n)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, "n is "+dec(n))
			require.ErrorContains(t, only(l.Wait(ctx, "k", n)), "n is "+dec(n))
		}
		require.ErrorContains(t, only(l.Wait(ctx, "k", 0)), "n is 0")
		require.ErrorIs(t, only(l.Wait(ctx, strings.Repeat("x", 1024+1), 1)), errs.ErrInvalidName)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := l.Allow(ended, "k", 1)
		require.ErrorIs(t, err, errs.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		defer func() {
			for verb, err := range verbs(l) {
				require.ErrorIs(t, err, errs.ErrClosed, verb)
			}
		}()
	}
	require.Zero(t, wire.Sent.Load())
	require.NoError(t, c.Close(ctx))
}

func BenchmarkRateLimiter(b *testing.B) {
	for _, local := range []bool{false, true} {
		l := on(b, redistest.Start(b).Client(b), patient).Limiter("l",
			ratelimit.LimiterOptions{Rate: 1_000_000_000, Burst: 1_000_000_000, PerProcess: local})
		b.Run(map[bool]string{true: "process", false: "server"}[local], func(b *testing.B) {
			both(b, func() error { _, err := l.Allow(ctx, "k", 1); return err })
		})
	}
}
