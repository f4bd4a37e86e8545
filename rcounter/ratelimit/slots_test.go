package ratelimit_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// A server behind a proxy that wants one slot in each call. The first shared call is refused, and nobody notices: every
// unit is taken once, and from then on no call is refused. What has to be one step over several slots is refused as in
// a Cluster, and costs those who share the call with it nothing.
func TestLimits_SeveralSlotsRefused_AreTakenInParts(t *testing.T) {
	t.Parallel()
	_, far, p := redistest.Away(t)
	_, refused := p.RefuseSeveralSlots(redistest.CrossSlot)
	c := on(t, far.Client(t), patient)
	const burst, callers, keys = 6, 48, 12
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: burst})
	var allowed [keys]atomic.Int64
	crowd := func() {
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range 2 {
					a, err := l.Allow(ctx, strconv.Itoa(i%keys), 1)
					if err != nil {
						t.Error(err)
					} else if a.Allowed {
						allowed[i%keys].Add(1)
					}
				}
				if i%keys == 0 {
					_, err := c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "x", N: 1}, ratelimit.Take{Limiter: l, Key: "y", N: 1})
					require.ErrorIs(t, err, errs.ErrInvalidName)
					require.ErrorContains(t, err, `the limits of "x" and "y" are in different slots`)
				}
			})
		}
		all.Wait()
	}
	crowd()
	first := refused.Load()
	require.Positive(t, first)
	crowd()
	require.Equal(t, first, refused.Load())
	for key := range keys {
		require.EqualValues(t, burst, allowed[key].Load(), key)
	}
	d, err := c.AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "{x}1", N: 1}, ratelimit.Take{Limiter: l, Key: "{x}2", N: 1})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	_, err = l.Allow(ctx, "y", burst)
	require.NoError(t, err, "AllowAll has taken nothing")
}
