package ratelimit_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Limits of a name are changed while processes use it, with a client-side cache and without.
func TestStored_LimitSet_CountsInAllProcesses(t *testing.T) {
	t.Parallel()
	rig.EachCache(t, func(t *testing.T, _ *redistest.Server, wire func() rueidis.Client) {
		users := []*ratelimit.Client{on(t, wire(), patient), on(t, wire(), patient)}
		operator := on(t, wire(), patient)
		code := ratelimit.LimiterOptions{Rate: 5, Per: time.Hour, Stored: true}
		remaining := func(of int) int64 {
			a := redistest.NoError(users[of].Limiter("api", code).Peek(ctx, "ann"))(t)
			return a.Remaining
		}
		all := func(want int64) {
			t.Helper()
			for i := range users {
				redistest.Eventually(t, 20*time.Second, "the limit is known", func() bool { return remaining(i) == want })
			}
		}
		all(5)
		redistest.NoError(users[0].Limiter("api", code).Allow(ctx, "ann", 2))(t)
		all(3)
		require.NoError(t, operator.Limiter("api", ratelimit.LimiterOptions{Rate: 50, Per: time.Hour}).Set(ctx,
			"ann; incident 7"))
		all(48)
		require.EqualValues(t, 5-2, func() int64 {
			a, err := users[0].Limiter("api", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour}).Peek(ctx, "ann")
			require.NoError(t, err)
			return a.Remaining
		}(), "without Stored the program's count")
		s := redistest.NoError(users[1].Limiter("api", code).Inspect(ctx))(t)
		require.Less(t, s.Age, time.Hour)
		s.Age = 0
		require.Equal(t, ratelimit.LimitState{Stored: true, Rate: 50, Per: time.Hour, Burst: 50, By: "ann; incident 7",
			Algorithm: ratelimit.GCRA}, s)
		a := redistest.NoError(users[1].Limiter("api", code).Allow(ctx, "ann", 40))(t)
		require.True(t, a.Allowed)
		_, err := users[1].Limiter("api", code).Allow(ctx, "ann", 51)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "n is 51, must be between 1 and Burst, which is 50")

		require.NoError(t, operator.Limiter("api", code).Reset(ctx, "ann"))
		require.NoError(t, operator.Limiter("api", code).Unset(ctx))
		s = redistest.NoError(users[1].Limiter("api", code).Inspect(ctx))(t)
		require.Equal(t, ratelimit.LimitState{Rate: 5, Per: time.Hour, Burst: 5, Algorithm: ratelimit.GCRA}, s)
		all(5)
	})
}

// A limit that is kept has no end, so a look does not ask for one: that takes two commands in place of five, and no
// right to MULTI.
func TestStored_Look_AsksForNoExpiry(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, srv.Client(t), patient)
	before := redistest.CommandCalls(t, admin)
	redistest.NoError(c.Limiter("api", ratelimit.LimiterOptions{Rate: 5, Stored: true}).Peek(ctx, "k"))(t)
	after := redistest.CommandCalls(t, admin)
	require.Positive(t, after["client|caching"]-before["client|caching"])
	require.Equal(t, before["multi"], after["multi"])
}

// What cannot be read changes nothing, and what cannot be asked leaves the program's limit.
func TestStored_UnreadableLimit_LeavesTheKnownOne(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	o := ratelimit.LimiterOptions{Rate: 5, Per: time.Hour, Stored: true}
	key := "rc:{api}:l3"
	for _, make := range [][]string{{"RPUSH", key, "x"}, {"SET", key, "g,7"}, {"SET", key, "g,-7,1,1;1;x"},
		{"SET", key, "f,7,d,Atlantis/Center;1;x"}} {
		must(t, raw, "DEL", key)
		must(t, raw, make...)
		c := on(t, srv.Client(t), patient)
		a := redistest.NoError(c.Limiter("api", o).Peek(ctx, "k"))(t)
		require.EqualValues(t, 5, a.Remaining, make)
		_, err := c.Limiter("api", o).Inspect(ctx)
		require.ErrorIs(t, err, errs.ErrWrongType, make)
	}
	must(t, raw, "DEL", key)
	must(t, raw, "RPUSH", key, "x")
	require.ErrorIs(t, on(t, raw, patient).Limiter("api", o).Set(ctx, "me"), errs.ErrWrongType)
	must(t, raw, "DEL", key)
	require.NoError(t, on(t, raw, patient).Limiter("api", ratelimit.LimiterOptions{Rate: 9}).Set(ctx, "me"))

	c := on(t, srv.Client(t), ratelimit.Options{AllowTimeout: 100 * time.Millisecond, RefusalTrust: -1})
	open := o
	open.WhenDown = ratelimit.Open
	srv.Stop(t)
	a := redistest.NoError(c.Limiter("api", open).Allow(ctx, "k", 5))(t)
	require.Error(t, a.Down)
	_, err := c.Limiter("api", open).Allow(ctx, "k", 9)
	require.ErrorIs(t, err, errs.ErrInvalidOption, "the program's limit is 5")
	srv.Resume(t)
	redistest.Eventually(t, 20*time.Second, "the server's limit is known", func() bool {
		a, err := c.Limiter("api", open).Allow(ctx, "other", 9)
		return err == nil && a.Down == nil
	})
}

// The server is silent from the start, then after it has answered. A caller waits for its own context, or for
// AllowTimeout, and not for those who ask before it: the longest call of each is counted, to the nanosecond.
func TestStored_ServerSilent_NoCallerWaitsForOthers(t *testing.T) {
	t.Parallel()
	const impatient, allow = 5 * time.Millisecond, 50 * time.Millisecond
	for _, answeredFirst := range []bool{false, true} {
		for _, policy := range []ratelimit.Policy{ratelimit.Fail, ratelimit.Open, ratelimit.Closed, ratelimit.Local} {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				proxy := redistest.NewProxy(t, servers[0])
				o := proxy.Server().Option()
				o.DisableCache = true // each look asks the server
				wire := redistest.NoError(rueidis.NewClient(o))(t)
				t.Cleanup(wire.Close)
				c := on(t, wire, ratelimit.Options{AllowTimeout: allow, RefusalTrust: -1})
				limit := ratelimit.LimiterOptions{Rate: 1000, Stored: true, WhenDown: policy}
				if policy == ratelimit.Local {
					limit.Share = 1
				}
				l := c.Limiter("l", limit)
				if answeredFirst {
					redistest.NoError(l.Allow(ctx, "k", 1))(t)
					time.Sleep(2 * time.Second)
				}
				proxy.BlackHole(redistest.Up)
				var mu sync.Mutex
				longest := map[time.Duration]time.Duration{}
				calls := 0
				call := func(patience time.Duration, verb func(ctx context.Context) (down, err error)) {
					ctx, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					began := time.Now()
					down, err := verb(ctx)
					took := time.Since(began)
					mu.Lock()
					defer mu.Unlock()
					calls++
					longest[patience] = max(longest[patience], took)
					if policy == ratelimit.Fail && err == nil || policy != ratelimit.Fail && patience > allow && err != nil ||
						err == nil && down == nil {
						t.Errorf("%v: %v, %v", patience, down, err)
					}
				}
				allowed := func(ctx context.Context) (down, err error) {
					a, err := l.Allow(ctx, "k", 1)
					return a.Down, err
				}
				several := func(ctx context.Context) (down, err error) {
					d, err := c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "k", N: 1})
					if err != nil {
						return nil, err
					}
					return d.Each[0].Down, nil
				}
				var wg sync.WaitGroup
				end := time.Now().Add(3 * time.Second)
				for i := range 16 {
					patience, verb := time.Minute, allowed
					if i%2 == 0 {
						patience = impatient
					}
					if i%4 > 1 {
						verb = several
					}
					wg.Go(func() {
						for time.Now().Before(end) {
							call(patience, verb)
							time.Sleep(time.Millisecond)
						}
					})
				}
				wg.Wait()
				require.LessOrEqual(t, longest[impatient], impatient, "%v, answered first %v", policy, answeredFirst)
				require.LessOrEqual(t, longest[time.Minute], allow, "%v, answered first %v", policy, answeredFirst)
				t.Logf("%v, answered first %v: %d calls, the longest %v", policy, answeredFirst, calls, longest)
			})
		}
	}
}

// An operator lowers a limit below what some requests take. Those are refused, whatever the new limit is, as are others
// for which there is no room; they are no mistakes of their callers.
func TestStored_LimitBelowARequest_Refuses(t *testing.T) {
	t.Parallel()
	for _, lowered := range []struct {
		o     ratelimit.LimiterOptions
		whole time.Duration // until all of it could pass again, at most
	}{
		{ratelimit.LimiterOptions{Rate: 5}, time.Second},
		{ratelimit.LimiterOptions{Rate: 5, Per: 366 * 24 * time.Hour, Burst: 2}, 2 * 366 * 24 * time.Hour / 5},
		{ratelimit.LimiterOptions{Rate: 5, Per: time.Minute, Algorithm: ratelimit.SlidingWindow}, time.Minute},
		{ratelimit.LimiterOptions{Rate: 5, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Month, Zone: time.UTC},
			31 * 24 * time.Hour},
	} {
		redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
			proxy := redistest.NewProxy(t, servers[0])
			user, operator := on(t, proxy.Server().Client(t), patient), on(t, servers[0].Client(t), patient)
			limiter := func(p ratelimit.Policy, share float64) *ratelimit.Limiter {
				return user.Limiter("api", ratelimit.LimiterOptions{Rate: 100, Stored: true, WhenDown: p, Share: share})
			}
			l, other := limiter(ratelimit.Fail, 0), user.Limiter("other", ratelimit.LimiterOptions{Rate: 100})
			a, err := l.Allow(ctx, "k", 10)
			require.NoError(t, err)
			require.True(t, a.Allowed)
			require.NoError(t, operator.Limiter("api", lowered.o).Set(ctx, "an incident"))
			require.NoError(t, operator.Limiter("api", lowered.o).Reset(ctx, "k"))
			time.Sleep(2 * time.Second)
			s := redistest.NoError(l.Inspect(ctx))(t)
			require.Equal(t, cmp.Or(lowered.o.Algorithm, ratelimit.GCRA), s.Algorithm)
			require.Equal(t, lowered.o.Unit, s.Unit)
			require.True(t, lowered.o.Per == 0 || lowered.o.Per == s.Per, s.Per)

			most := lowered.o.Rate
			if lowered.o.Burst != 0 {
				most = lowered.o.Burst
			}
			for n := most + 1; n <= 100; n++ {
				a = redistest.NoError(l.Allow(ctx, "k", n))(t)
				require.False(t, a.Allowed, "%d units", n)
				require.Equal(t, most, a.Remaining)
				require.GreaterOrEqual(t, a.RetryAfter, time.Second)
				require.LessOrEqual(t, a.RetryAfter, lowered.whole)
				_, err = l.Wait(ctx, "k", n)
				if lowered.o.Algorithm == "" {
					require.ErrorIs(t, err, ratelimit.ErrLimited)
				}
				require.Error(t, err)
			}
			d := redistest.NoError(user.AllowAll(ctx, ratelimit.Take{Limiter: other, Key: "k", N: 1},
				ratelimit.Take{Limiter: l, Key: "k", N: 100}))(t)
			require.False(t, d.Allowed)
			require.True(t, d.Each[0].Allowed)
			require.GreaterOrEqual(t, d.RetryAfter, time.Second)
			a = redistest.NoError(l.AllowAtMost(ctx, "k", 100))(t)
			require.Equal(t, most, a.N, "as many as may pass")
			_, err = l.Allow(ctx, "k", 101)
			require.ErrorIs(t, err, errs.ErrInvalidOption, "the program never let as many pass")

			proxy.BlackHole(redistest.Up)
			for _, p := range []ratelimit.Policy{ratelimit.Open, ratelimit.Closed, ratelimit.Local} {
				share := 0.
				if p == ratelimit.Local {
					share = 1
				}
				a = redistest.NoError(limiter(p, share).Allow(ctx, "down", 100))(t)
				require.Error(t, a.Down)
				require.Equal(t, p == ratelimit.Open, a.Allowed, p)
				require.Equal(t, p == ratelimit.Open, a.N == 100, p)
				require.Equal(t, p != ratelimit.Open, a.RetryAfter > 0, p)
				d = redistest.NoError(user.AllowAll(ctx, ratelimit.Take{Limiter: limiter(p, share), Key: "down", N: 100}))(t)
				require.Equal(t, p == ratelimit.Open, d.Allowed, p)
			}
		})
	}
}
