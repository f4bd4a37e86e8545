package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// lines is a log that a test reads while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAPolicyAnswersWhileTheServerDoesNot(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var log lines
	type change struct {
		name string
		by   ratelimit.Policy
		down bool
	}
	changes := make(chan change, 100)
	c := on(t, srv.Client(t),
		ratelimit.Options{AllowTimeout: 100 * time.Millisecond, RefusalTrust: -1,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: func(_ context.Context, e ratelimit.Event) {
				if e.Kind == ratelimit.EventDegraded {
					changes <- change{e.Name, e.Policy, e.Err != nil}
				}
			}})
	o := ratelimit.LimiterOptions{Rate: 10, Per: time.Hour}
	of := func(p ratelimit.Policy, share float64) *ratelimit.Limiter {
		o := o
		o.WhenDown, o.Share = p, share
		return c.Limiter(string(p), o)
	}
	fail, closed, open, local := of(ratelimit.Fail, 0), of(ratelimit.Closed, 0), of(ratelimit.Open, 0),
		of(ratelimit.Local, .5)
	for _, l := range []*ratelimit.Limiter{fail, closed, open, local} {
		redistest.Eventually(t, 20*time.Second, "an answer", func() bool {
			a, err := l.Allow(ctx, "k", 1)
			return err == nil && a.Down == nil
		})
	}
	// On a busy machine policies have answered already. What they began to say they end, before the test begins.
	redistest.Eventually(t, time.Minute, "no policy answers", func() bool {
		for _, l := range []*ratelimit.Limiter{closed, open, local} {
			if _, err := l.Allow(ctx, "k", 1); err != nil {
				return false
			}
		}
		return len(accessor.Of[accessor.Limits](c).Answering()) == 0
	})
	for len(changes) > 0 {
		<-changes
	}
	srv.Stop(t)
	_, err := fail.Allow(ctx, "k", 1)
	require.Error(t, err)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)

	began := time.Now()
	passed := 0
	for range 50 {
		a, err := closed.Allow(ctx, "down", 1)
		require.NoError(t, err)
		require.False(t, a.Allowed)
		require.Error(t, a.Down)
		require.Positive(t, a.RetryAfter)
		a, err = open.Allow(ctx, "down", 7)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		require.EqualValues(t, 7, a.N)
		require.Error(t, a.Down)
		a, err = local.Allow(ctx, "down", 1)
		require.NoError(t, err)
		require.Error(t, a.Down)
		if a.Allowed {
			passed++
		}
	}
	require.Equal(t, 5, passed, "half of the burst")
	require.Less(t, time.Since(began), 15*100*time.Millisecond+10*time.Second,
		"one of them asks, and the others do not wait")
	a, err := local.AllowAtMost(ctx, "other", 9)
	require.NoError(t, err)
	require.EqualValues(t, 5, a.N)

	all := func(takes ...ratelimit.Take) ratelimit.Decision {
		d, err := c.AllowAll(ctx, takes...)
		require.NoError(t, err)
		return d
	}
	d := all(ratelimit.Take{Limiter: open, Key: "z", N: 1}, ratelimit.Take{Limiter: closed, Key: "z", N: 1})
	require.False(t, d.Allowed, "closed is stricter")
	d = all(ratelimit.Take{Limiter: open, Key: "z", N: 9}, ratelimit.Take{Limiter: local, Key: "z", N: 4})
	require.True(t, d.Allowed)
	require.Error(t, d.Each[0].Down)
	d = all(ratelimit.Take{Limiter: open, Key: "z", N: 9}, ratelimit.Take{Limiter: local, Key: "z", N: 4})
	require.False(t, d.Allowed, "a unit of five is left")
	require.True(t, d.Each[0].Allowed)
	require.False(t, d.Each[1].Allowed)
	require.Positive(t, d.RetryAfter)
	_, err = c.AllowAll(ctx, ratelimit.Take{Limiter: open, Key: "z", N: 9}, ratelimit.Take{Limiter: fail, Key: "z", N: 4})
	require.Error(t, err)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = open.Wait(ended, "k", 1)
	require.Error(t, err, "Wait has no policy")

	srv.Resume(t)
	redistest.Eventually(t, 30*time.Second, "each limiter is answered again, and says so", func() bool {
		for _, l := range []*ratelimit.Limiter{closed, open, local} {
			_, err := l.Allow(ctx, "k", 1)
			require.NoError(t, err)
		}
		return len(changes) >= 6
	})
	seen := map[string][]bool{}
	for len(changes) > 0 {
		x := <-changes
		require.Equal(t, x.name, string(x.by))
		seen[x.name] = append(seen[x.name], x.down)
	}
	for _, name := range []string{"Closed", "Open", "Local"} {
		require.NotEmpty(t, seen[name])
		for i, down := range seen[name] {
			require.Equal(t, i%2 == 0, down, "%s: it begins, and ends, in turns", name)
		}
	}
	require.Contains(t, log.String(), "the server does not answer, and a rate limiter's policy does")
	require.Contains(t, log.String(), "the server answers again, and no rate limiter's policy")
}

// What several processes let pass while the server is down is the sum of their shares, each like a limiter of its own.
func TestLocalLimitersLetTheSumOfTheirSharesPass(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const processes, rate, burst = 4, 400, 40
	o := ratelimit.LimiterOptions{Rate: rate, Burst: burst, WhenDown: ratelimit.Local, Share: 1. / processes}
	var limiters []*ratelimit.Limiter
	for range processes {
		l := on(t, srv.Client(t), ratelimit.Options{AllowTimeout: 20 * time.Millisecond, RefusalTrust: -1}).Limiter("l", o)
		_, err := l.Peek(ctx, "")
		_ = err // it knows the server, or does not
		limiters = append(limiters, l)
	}
	srv.Stop(t)
	defer srv.Resume(t)
	var passed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for _, l := range limiters {
		wg.Go(func() {
			for time.Since(began) < 500*time.Millisecond {
				a, err := l.Allow(ctx, "", 1)
				if err != nil {
					t.Error(err)
					return
				}
				if a.Allowed {
					passed.Add(1)
				}
				time.Sleep(500 * time.Microsecond)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	require.LessOrEqual(t, passed.Load(), int64(burst)+int64(took.Seconds()*rate)+processes)
	require.Greater(t, passed.Load(), int64(burst))
	t.Logf("%d passed in %v, where the server would have let %d pass", passed.Load(), took,
		int64(burst)+int64(took.Seconds()*rate))
}

// An outage lets two bursts more pass under Local with shares that add up to one: one when it begins, because the
// limits of the processes are full then, and one when it ends, because the server's has become so. Under Open all that
// is asked while it lasts passes.
func TestWhatAnOutageLetsPassUnderOpenAndLocal(t *testing.T) {
	t.Parallel()
	const processes, rate, burst, phase = 4, 400, 40, 450 * time.Millisecond
	for policy, share := range map[ratelimit.Policy]float64{ratelimit.Local: 1. / processes, ratelimit.Open: 0} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			var asked, passed [2]atomic.Int64 // of the server, and of the policy
			var wg sync.WaitGroup
			var away atomic.Bool
			var stray atomic.Int64 // answers of the policy while the server was up, but slow: the two let pass side by side then
			over := make(chan struct{})
			began := time.Now()
			for range processes {
				l := on(t, srv.Client(t), ratelimit.Options{AllowTimeout: 20 * time.Millisecond, RefusalTrust: -1}).
					Limiter("l", ratelimit.LimiterOptions{Rate: rate, Burst: burst, WhenDown: policy, Share: share})
				wg.Go(func() {
					for {
						a, err := l.Allow(ctx, "", 1)
						if err != nil {
							t.Error(err)
							return
						}
						by := 0
						if a.Down != nil {
							by = 1
							if !away.Load() {
								stray.Add(1)
							}
						}
						asked[by].Add(1)
						passed[by].Add(a.N)
						select {
						case <-over:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			// each phase lasts until it has had requests, too: a busy machine may have taken its time
			reach := func(by int) {
				from := asked[by].Load()
				time.Sleep(phase)
				redistest.Eventually(t, 20*time.Second, "requests", func() bool { return asked[by].Load() > from })
			}
			reach(0)
			away.Store(true)
			srv.Stop(t)
			reach(1)
			srv.Resume(t)
			reach(0)
			away.Store(false)
			reach(0)
			close(over)
			wg.Wait()
			all := passed[0].Load() + passed[1].Load()
			promised := burst + int64(time.Since(began).Seconds()*rate)
			t.Logf("%v: of %d requests %d passed, %d of them by the policy; the server alone would have let %d pass", policy,
				asked[0].Load()+asked[1].Load(), all, passed[1].Load(), promised)
			require.LessOrEqual(t, passed[0].Load(), promised, "what the server let pass is as promised")
			if policy == ratelimit.Open {
				require.Equal(t, asked[1].Load(), passed[1].Load(), "everything")
				return
			}
			require.LessOrEqual(t, passed[1].Load(), promised+processes, "what the policy let pass is the sum of the shares")
			require.Greater(t, passed[1].Load(), int64(burst/2))
			if stray.Load() == 0 {
				require.LessOrEqual(t, all, promised+2*burst+processes)
			}
		})
	}
}

func TestTheObserverIsToldOfEachAdmission(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	var mu sync.Mutex
	told := map[string]int{}
	o := patient
	o.Observer = func(_ context.Context, e ratelimit.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind != ratelimit.EventAdmitted || e.Took < 0 {
			t.Error(e)
		}
		told[fmt.Sprint(e.Name, " ", e.Allowed, " ", errors.Is(e.Err, errs.ErrWrongType))]++
	}
	c := on(t, srv.Client(t), o)
	a, b := c.Limiter("a", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour}), c.Limiter("b",
		ratelimit.LimiterOptions{Rate: 5, Per: time.Hour})
	for range 2 {
		_, err := c.AllowAll(ctx, ratelimit.Take{Limiter: a, Key: "k", N: 1}, ratelimit.Take{Limiter: b, Key: "k", N: 1})
		require.NoError(t, err)
	}
	_, err := a.Allow(ctx, "k", 1)
	require.NoError(t, err)
	_, err = b.AllowAtMost(ctx, "k", 5)
	require.NoError(t, err)
	must(t, srv.Client(t), "DEL", a.Key("k"))
	must(t, srv.Client(t), "RPUSH", a.Key("k"), "x")
	_, err = a.Allow(ctx, "k", 1)
	require.ErrorIs(t, err, errs.ErrWrongType)
	require.Equal(t, map[string]int{"a true false": 2, "b true false": 3, "a false false": 1, "a false true": 1}, told)
}
