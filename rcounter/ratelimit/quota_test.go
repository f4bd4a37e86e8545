package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

func TestQuota_EveryAlgorithm_IsWhatPassesInAWindow(t *testing.T) {
	t.Parallel()
	c := on(t, nowhere{}, patient)
	for _, tc := range []struct {
		o      ratelimit.LimiterOptions
		n      int64
		window time.Duration
	}{
		{ratelimit.LimiterOptions{Rate: 10, Per: time.Minute, Burst: 5}, 5, 30 * time.Second},
		{ratelimit.LimiterOptions{Rate: 3}, 3, time.Second},
		{ratelimit.LimiterOptions{Rate: 7, Per: time.Hour, Algorithm: ratelimit.SlidingWindow}, 7, time.Hour},
		{ratelimit.LimiterOptions{Rate: 7, Unit: ratelimit.Minute, Algorithm: ratelimit.FixedWindow}, 7, time.Minute},
		{ratelimit.LimiterOptions{Rate: 7, Unit: ratelimit.Week, Algorithm: ratelimit.FixedWindow}, 7, 168 * time.Hour},
		{ratelimit.LimiterOptions{Rate: 7, Unit: ratelimit.Year, Algorithm: ratelimit.FixedWindow}, 7, 8760 * time.Hour},
		{ratelimit.LimiterOptions{Rate: -1}, 0, 0},
	} {
		n, window := c.Limiter("l", tc.o).Quota()
		require.Equal(t, tc.n, n, "%+v", tc.o)
		require.Equal(t, tc.window, window, "%+v", tc.o)
	}
}

func TestQuota_Stored_IsWhatIsKnown(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 3, Stored: true})
	n, _ := l.Quota()
	require.EqualValues(t, 3, n, "nothing is known yet")
	minute := ratelimit.LimiterOptions{Rate: 60, Per: time.Minute, Algorithm: ratelimit.SlidingWindow}
	require.NoError(t, c.Limiter("l", minute).Set(ctx, "me"))
	redistest.NoError(l.Allow(ctx, "", 1))(t)
	n, window := l.Quota()
	require.EqualValues(t, 60, n)
	require.Equal(t, time.Minute, window)
}

func TestReservation_CanceledTwice_GivesBackOnce(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 2})
	redistest.NoError(l.Reserve(ctx, "", 2))(t)
	r := redistest.NoError(l.Reserve(ctx, "", 2))(t)
	for _, want := range []bool{true, false} {
		back := redistest.NoError(r.Cancel(ctx))(t)
		require.Equal(t, want, back)
	}
	again := redistest.NoError(l.Reserve(ctx, "", 2))(t)
	require.Less(t, again.Delay(), 2*time.Hour+time.Minute, "its turn was free")
}
