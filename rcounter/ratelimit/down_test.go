package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

func TestPolicy_ServerSilent_Answers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	log, logged := rig.Logged()
	type change struct {
		name string
		by   ratelimit.Policy
		down bool
	}
	changes := make(chan change, 100)
	c := on(t, srv.Client(t),
		ratelimit.Options{AllowTimeout: 100 * time.Millisecond, RefusalTrust: -1,
			Logger: log,
			Observer: func(_ context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventDegraded {
					changes <- change{e.Name, ratelimit.Policy(e.Outcome), e.Err != nil}
				}
				return nil
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
		a := redistest.NoError(closed.Allow(ctx, "down", 1))(t)
		require.False(t, a.Allowed)
		require.Error(t, a.Down)
		require.Positive(t, a.RetryAfter)
		a = redistest.NoError(open.Allow(ctx, "down", 7))(t)
		require.True(t, a.Allowed)
		require.EqualValues(t, 7, a.N)
		require.Error(t, a.Down)
		a = redistest.NoError(local.Allow(ctx, "down", 1))(t)
		require.Error(t, a.Down)
		if a.Allowed {
			passed++
		}
	}
	require.Equal(t, 5, passed, "half of the burst")
	require.Less(t, time.Since(began), 15*100*time.Millisecond+10*time.Second,
		"one of them asks, and the others do not wait")
	a := redistest.NoError(local.AllowAtMost(ctx, "other", 9))(t)
	require.EqualValues(t, 5, a.N)

	all := func(takes ...ratelimit.Take) ratelimit.Decision {
		d := redistest.NoError(c.AllowAll(ctx, takes...))(t)
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
			redistest.NoError(l.Allow(ctx, "k", 1))(t)
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
	require.Contains(t, logged(), "the server does not answer; the WhenDown policy of a rate limiter decides")
	require.Contains(t, logged(), "the server answers again; the WhenDown policy of a rate limiter no longer decides")
}

// Requests of 1 to Burst units come in crowds while the server is silent. Each process lets its share of the rate pass
// in any stretch of time, whatever the sizes are, and a request that comes alone passes when it was told to come.
func TestLocal_UnitsFromOneToBurst_KeepTheShare(t *testing.T) {
	t.Parallel()
	const rate, burst, share = 100, 100, .25
	for _, all := range []bool{false, true} {
		for _, o := range []ratelimit.LimiterOptions{
			{Rate: rate, Burst: burst},
			{Rate: rate, Algorithm: ratelimit.SlidingWindow},
			{Rate: rate, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Minute},
		} {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				proxy := redistest.NewProxy(t, servers[0])
				c := on(t, proxy.Server().Client(t), ratelimit.Options{RefusalTrust: -1})
				o.WhenDown, o.Share = ratelimit.Local, share
				l, per := c.Limiter("l", o), time.Second
				if o.Unit == ratelimit.Minute {
					per = time.Minute
				}
				redistest.NoError(l.Peek(ctx, ""))(t)
				proxy.BlackHole(redistest.Up)
				take := func(n int64) (passes bool, retry time.Duration) {
					if all {
						d := redistest.NoError(c.AllowAll(ctx, ratelimit.Take{Limiter: l, N: n}))(t)
						require.Error(t, d.Each[0].Down)
						return d.Allowed, d.RetryAfter
					}
					a := redistest.NoError(l.Allow(ctx, "", n))(t)
					require.Error(t, a.Down)
					require.True(t, !a.Allowed || a.N == n)
					return a.Allowed, a.RetryAfter
				}
				rnd := rand.New(rand.NewPCG(1, 1))
				seen := map[int64]bool{}
				for range redistest.Sized(10, 20, 200) {
					most := int64(1)
					var passed []judges.Passed
					began := time.Now()
					for range 500 {
						n := 1 + rnd.Int64N(burst)
						if rnd.IntN(2) == 0 {
							n = burst
						}
						yes, retry := take(n)
						if !yes && rnd.IntN(4) == 0 {
							time.Sleep(retry)
							yes, _ = take(n)
							require.True(t, yes, "%d units come when told", n)
						}
						if yes {
							at := time.Since(began)
							passed = append(passed, judges.Passed{From: at, To: at, N: n})
							most, seen[n] = max(most, n), true
						}
						time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
					}
					of := judges.Rate{N: rate * share, Per: per, Burst: max(rate*share, most)}
					require.Empty(t, of.Exceeded(passed, 0), "%d requests passed", len(passed))
					time.Sleep(10 * time.Minute)
				}
				require.Greater(t, len(seen), 10)
				require.True(t, seen[burst], "a request of all of the burst passes")
			})
		}
	}
}

// silent is a limiter under Local whose server does not answer.
func silent(t *testing.T, servers []*redistest.Server, o ratelimit.LimiterOptions) (*ratelimit.Client,
	*ratelimit.Limiter) {
	t.Helper()
	proxy := redistest.NewProxy(t, servers[0])
	c := on(t, proxy.Server().Client(t), ratelimit.Options{RefusalTrust: -1})
	o.WhenDown, o.Share = ratelimit.Local, .25
	l := c.Limiter("l", o)
	redistest.NoError(l.Peek(ctx, ""))(t)
	proxy.BlackHole(redistest.Up)
	a := redistest.NoError(l.Allow(ctx, "first", 1))(t)
	require.Error(t, a.Down)
	return c, l
}

// A request that is larger than the share of the burst passes when the bucket is full, and all of its units count: the
// next request waits for as long as the share takes for them.
func TestLocal_RequestLargerThanItsShare_PassesWhenFull(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		c, l := silent(t, servers, ratelimit.LimiterOptions{Rate: 100})
		allow := func(n int64) ratelimit.Admission {
			t.Helper()
			a := redistest.NoError(l.Allow(ctx, "k", n))(t)
			require.Error(t, a.Down)
			return a
		}
		a := allow(1)
		require.Equal(t, []int64{1, 24}, []int64{a.N, a.Remaining})
		a = allow(100)
		require.False(t, a.Allowed, "a unit is missing")
		require.InDelta(t, 40*time.Millisecond, a.RetryAfter, float64(10*time.Microsecond))
		time.Sleep(a.RetryAfter)
		a = allow(100)
		require.True(t, a.Allowed)
		require.Equal(t, []int64{100, 0}, []int64{a.N, a.Remaining})
		require.InDelta(t, 4*time.Second, a.ResetAfter, float64(100*time.Microsecond), "100 units at 25 a second")
		d := redistest.NoError(c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "k"}))(t)
		require.True(t, d.Allowed, "to look needs no units")
		some := redistest.NoError(l.AllowAtMost(ctx, "k", 9))(t)
		require.False(t, some.Allowed)
		a = allow(25)
		require.False(t, a.Allowed)
		require.InDelta(t, 4*time.Second, a.RetryAfter, float64(200*time.Millisecond))
		time.Sleep(a.RetryAfter - 60*time.Millisecond) // the call may ask the server first, for AllowTimeout
		a = allow(25)
		require.False(t, a.Allowed)
		time.Sleep(a.RetryAfter)
		require.True(t, allow(25).Allowed)
	})
}

func TestLocal_KeysThatDoNotCount_AreForgotten(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		c, l := silent(t, servers, ratelimit.LimiterOptions{Rate: 4})
		most := 0
		for i := range 5_000 {
			redistest.NoError(l.Allow(ctx, strconv.Itoa(i), 1))(t)
			time.Sleep(10 * time.Millisecond) // a hundred count at any time
			most = max(most, c.LocalKeys())
		}
		require.Positive(t, most)
		require.LessOrEqual(t, most, 1024)
	})
}

// An outage lets two bursts more pass under Local with shares that add up to one: one when it begins, because the
// limits of the processes are full then, and one when it ends, because the server's has become so. Under Open all that
// is asked while it lasts passes.
func TestOutage_OpenOrLocal_LetsPassWhatIsSaid(t *testing.T) {
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

func TestWait_GivenUpWhileServerFails_IsToldAndLogged(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	var book redistest.Logbook
	told := make(chan redlatch.Event, 10)
	o := patient
	o.Logger = book.Logger()
	o.Observer = func(_ context.Context, e redlatch.Event) context.Context {
		if e.Kind == redlatch.EventBackgroundFailed {
			told <- e
		}
		return nil
	}
	l := on(t, srv.Client(t), o).Limiter("slow", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
	require.NoError(t, only(l.Wait(ctx, "", 1)))
	waiting, giveUp := context.WithCancel(ctx)
	given := make(chan error, 1)
	go func() { given <- only(l.Wait(waiting, "", 1)) }()
	redistest.Eventually(t, 20*time.Second, "it waits", func() bool {
		a, err := l.Peek(ctx, "")
		return err == nil && a.ResetAfter > 90*time.Minute
	})
	srv.Embedded.SetError("ERR out of order")
	giveUp()
	require.ErrorIs(t, <-given, context.Canceled)
	e := <-told
	require.Equal(t, "slow", e.Name)
	require.ErrorContains(t, e.Err, "out of order")
	redistest.Eventually(t, 20*time.Second, "it is logged", func() bool {
		return book.Count("could not be returned") == 1
	})
	srv.Embedded.SetError("")
}
