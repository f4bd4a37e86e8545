package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/stretchr/testify/require"
)

// A thousand callers wait without a deadline and leave, as clients do that disconnect. Those that wait do so for
// MaxWait at most; and when they have left, the limiter is where it was.
func TestWaitersThatLeaveCloseNoLimiter(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const callers, burst, rate, waiting = 500, 10, 10, 20
	srv := redistest.Embedded(t)
	srv.Embedded.SetTime(time.Now()) // and there it stands
	for _, perProcess := range []bool{false, true} {
		o := ratelimit.LimiterOptions{Rate: rate, Per: time.Hour, Burst: burst, MaxWait: waiting * time.Hour / rate,
			PerProcess: perProcess}
		l := on(t, srv.Client(t), patient).Limiter("l", o)
		r := context.WithoutCancel(ctx)
		leaving, leave := context.WithCancel(r)
		defer leave()
		var refused atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				a, err := l.Wait(leaving, "", 1)
				switch {
				case errors.Is(err, ratelimit.ErrLimited):
					if a.RetryAfter <= o.MaxWait {
						t.Error("refused before MaxWait:", a, err)
					}
					if refused.Add(1) >= callers-burst-waiting {
						leave()
					}
				case err != nil && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
			})
			if perProcess && refused.Load() > 0 {
				leave() // its clock goes on
			}
		}
		wg.Wait()
		require.Positive(t, refused.Load())
		redistest.Eventually(t, 20*time.Second, "their turns are given back", func() bool {
			a, err := l.Peek(r, "")
			require.NoError(t, err)
			return a.ResetAfter <= burst*time.Hour/rate
		})
	}
	l := on(t, srv.Client(t), patient).Limiter("one",
		ratelimit.LimiterOptions{Rate: 1, Per: time.Minute, MaxWait: time.Second})
	require.NoError(t, only(l.Wait(ctx, "", 1)))
	before, err := l.Peek(ctx, "")
	require.NoError(t, err)
	err = only(l.Wait(ctx, "", 1))
	require.ErrorIs(t, err, ratelimit.ErrLimited)
	require.ErrorContains(t, err, "longer than MaxWait, 1s")
	after, err := l.Peek(ctx, "")
	require.NoError(t, err)
	require.Equal(t, before, after, "nothing was taken")
	for _, d := range []time.Duration{-1, time.Microsecond, 25 * time.Hour} {
		l := on(t, srv.Client(t), patient).Limiter("bad", ratelimit.LimiterOptions{Rate: 1, MaxWait: d})
		require.ErrorIs(t, only(l.Wait(ctx, "", 1)), errs.ErrInvalidOption)
	}
}
