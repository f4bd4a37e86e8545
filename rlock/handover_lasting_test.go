package rlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// TestHandOver_ReenteredAtOnce_KeepsItsLease: the raise is not yet due when a re-entry that is renewed comes
// and goes.
func TestHandOver_ReenteredAtOnce_KeepsItsLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		o := rlock.Options{WatchdogTimeout: 2 * time.Second}
		holder, waiter := newRig(t, s, o).warmUp(t), newRig(t, s, o).warmUp(t)
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		w := queueUp(t, s.Client(t), waiter.locks.Reentrant("l").WithLease(time.Minute), within(t), 1)
		released := time.Now()
		require.NoError(t, h.Unlock(within(t)))
		got := <-w
		require.NoError(t, got.err)
		inner := lock(t, waiter.locks.Reentrant("l"), got.hold.Context(within(t)))
		require.NoError(t, inner.Unlock(within(t)))
		redistest.Eventually(t, 20*time.Second, "raised to the full", func() bool {
			return got.hold.Until().Sub(released) > 50*time.Second
		})
		require.NoError(t, got.hold.Err())
		require.NoError(t, got.hold.Unlock(within(t)))
	})
}

// TestHandOver_LongWait_AddsNoRenewals: how long a waiter stood in the queue is no age of its hold.
func TestHandOver_LongWait_AddsNoRenewals(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		var renewals atomic.Int32
		observe := func(ctx context.Context, e redlatch.Event) context.Context {
			if e.Kind == redlatch.EventRenewed {
				renewals.Add(1)
			}
			return ctx
		}
		x := &scramble{rigs: newRigs(t, servers[0], 32, rlock.Options{Observer: observe}), workers: 1, name: "l",
			think: time.Millisecond, work: 4 * time.Millisecond}
		x.run(t, within(t), 250)
		require.LessOrEqual(t, int(renewals.Load()), 5, "of %d holds", len(x.order))
	})
}
