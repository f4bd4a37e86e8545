package ratelimit_test

import (
	"cmp"
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
func TestALimitSetOnTheServerCountsInAllProcesses(t *testing.T) {
	t.Parallel()
	rig.EachCache(t, func(t *testing.T, _ *redistest.Server, wire func() rueidis.Client) {
		users := []*ratelimit.Client{on(t, wire(), patient), on(t, wire(), patient)}
		operator := on(t, wire(), patient)
		code := ratelimit.LimiterOptions{Rate: 5, Per: time.Hour, Stored: true}
		remaining := func(of int) int64 {
			a, err := users[of].Limiter("api", code).Peek(ctx, "ann")
			require.NoError(t, err)
			return a.Remaining
		}
		all := func(want int64) {
			t.Helper()
			for i := range users {
				redistest.Eventually(t, 20*time.Second, "the limit is known", func() bool { return remaining(i) == want })
			}
		}
		all(5)
		_, err := users[0].Limiter("api", code).Allow(ctx, "ann", 2)
		require.NoError(t, err)
		all(3)
		require.NoError(t, operator.Limiter("api", ratelimit.LimiterOptions{Rate: 50, Per: time.Hour}).Set(ctx,
			"ann; incident 7"))
		all(48)
		require.EqualValues(t, 5-2, func() int64 {
			a, err := users[0].Limiter("api", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour}).Peek(ctx, "ann")
			require.NoError(t, err)
			return a.Remaining
		}(), "without Stored the program's count")
		s, err := users[1].Limiter("api", code).Inspect(ctx)
		require.NoError(t, err)
		require.Less(t, s.Age, time.Hour)
		s.Age = 0
		require.Equal(t, ratelimit.LimitState{Stored: true, Rate: 50, Per: time.Hour, Burst: 50, By: "ann; incident 7",
			Algorithm: ratelimit.GCRA}, s)
		a, err := users[1].Limiter("api", code).Allow(ctx, "ann", 40)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		_, err = users[1].Limiter("api", code).Allow(ctx, "ann", 51)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "n is 51, must be between 1 and Burst, which is 50")

		require.NoError(t, operator.Limiter("api", code).Reset(ctx, "ann"))
		require.NoError(t, operator.Limiter("api", code).Unset(ctx))
		s, err = users[1].Limiter("api", code).Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, ratelimit.LimitState{Rate: 5, Per: time.Hour, Burst: 5, Algorithm: ratelimit.GCRA}, s)
		all(5)
	})
}

// Each second a client asks for the limits that it uses; here a second is a moment.
func TestEveryAlgorithmCanBeSetOnTheServer(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		user, operator := on(t, servers[0].Client(t), patient), on(t, servers[0].Client(t), patient)
		code := user.Limiter("api", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour, Stored: true})
		for _, o := range []ratelimit.LimiterOptions{
			{Rate: 7, Algorithm: ratelimit.SlidingWindow, Per: time.Minute},
			{Rate: 7, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Month, Zone: time.UTC},
			{Rate: 7, Per: time.Microsecond, Burst: 9},
		} {
			require.NoError(t, operator.Limiter("api", o).Set(ctx, ""))
			s, err := code.Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, cmp.Or(o.Algorithm, ratelimit.GCRA), s.Algorithm)
			require.EqualValues(t, 7, s.Rate)
			require.Equal(t, o.Per, s.Per)
			require.Equal(t, o.Burst, s.Burst)
			require.Equal(t, o.Unit, s.Unit)
			redistest.Eventually(t, 3*time.Second, "the limit is known", func() bool {
				a, err := code.Peek(ctx, "ann")
				require.NoError(t, err)
				return a.Remaining == max(7, o.Burst)
			})
		}
	})
}

// What cannot be read changes nothing, and what cannot be asked leaves the program's limit.
func TestALimitOfTheServerThatCannotBeReadLeavesTheOneThatIsKnown(t *testing.T) {
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
		a, err := c.Limiter("api", o).Peek(ctx, "k")
		require.NoError(t, err)
		require.EqualValues(t, 5, a.Remaining, make)
		_, err = c.Limiter("api", o).Inspect(ctx)
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
	a, err := c.Limiter("api", open).Allow(ctx, "k", 5)
	require.NoError(t, err)
	require.Error(t, a.Down)
	_, err = c.Limiter("api", open).Allow(ctx, "k", 9)
	require.ErrorIs(t, err, errs.ErrInvalidOption, "the program's limit is 5")
	srv.Resume(t)
	redistest.Eventually(t, 20*time.Second, "the server's limit is known", func() bool {
		a, err := c.Limiter("api", open).Allow(ctx, "other", 9)
		return err == nil && a.Down == nil
	})
}

func TestWhatSetRefusesIsNotSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	wire.Sent.Store(0)
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1})
	require.ErrorIs(t, l.Set(ctx, string(make([]byte, 257))), errs.ErrInvalidOption)
	require.ErrorIs(t, c.Limiter("l", ratelimit.LimiterOptions{}).Set(ctx, ""), errs.ErrInvalidOption)
	nowhere := c.Limiter("l",
		ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day,
			Zone: time.FixedZone("here", 3600)})
	require.ErrorContains(t, nowhere.Set(ctx, ""), `Zone is "here"`)
	require.NoError(t, c.Close(ctx))
	require.ErrorIs(t, l.Set(ctx, ""), errs.ErrClosed)
	require.ErrorIs(t, l.Unset(ctx), errs.ErrClosed)
	_, err := l.Inspect(ctx)
	require.ErrorIs(t, err, errs.ErrClosed)
	require.Zero(t, wire.Sent.Load())
}
