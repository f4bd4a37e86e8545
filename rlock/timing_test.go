package rlock_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// bubble runs fn in a synctest bubble with a server and n processes on it; hours there are moments here.
func bubble(t *testing.T, n int, o rlock.Options, fn func(t *testing.T, s *redistest.Server, rigs []*rig)) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	redistest.InBubble(t, n, func(t *testing.T, s *redistest.Server, c rueidis.Client) (*rig, func()) {
		h, err := pubsub.New(c, pubsub.Options{Logger: o.Logger})
		require.NoError(t, err)
		if o.RetryTimeout == 0 {
			o.RetryTimeout = redistest.Retries(o.CallTimeout)
		}
		locks, err := rlock.New(h, o)
		require.NoError(t, err)
		return &rig{server: s, redis: c, hub: h, locks: locks}, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			locks.Close(ctx) // an error is that of a test's own Close
			require.NoError(t, h.Close(context.Background()))
		}
	}, fn)
}

func TestWaiters_OfOneProcess_AreServedInOrder(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		l := rigs[0].locks.Reentrant("l")
		ctx := context.Background()
		h := lock(t, l, ctx)
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				err := l.Do(ctx, func(context.Context) error { order = append(order, i); return nil })
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // i stands in line
		}
		require.NoError(t, h.Unlock(ctx))
		wg.Wait()
		require.Len(t, order, 20)
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Zero(t, rigs[0].locks.Lines(), "a name nobody waits for costs nothing")
	})
}

// A return before its Unlock must not turn the deferred Close(context.Background()) of a main into one that never
// returns.
func TestClose_CtxWithoutEnd_EndsAndNamesHeldLocks(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		h := lock(t, rigs[0].locks.Reentrant("forgetful"), context.Background())
		began := time.Now()
		err := rigs[0].locks.Close(context.Background())
		require.ErrorContains(t, err, "1 still held, left to their leases: forgetful")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, h.Err(), errs.ErrClosed)
		require.ErrorIs(t, h.Unlock(context.Background()), errs.ErrLost)
	})
}

// Whoever has waited has left the line when its call returns, and so come back no sooner: a crowd of callers with
// little patience would fill the line with what nobody wants any more.
func TestFair_CallerGivesUp_HasLeftTheQueue(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, s *redistest.Server, all []*rig) {
		held, err := all[0].locks.Fair("x").Lock(context.Background())
		require.NoError(t, err)
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			_, err := all[1].locks.Fair("x").Lock(ctx)
			cancel()
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			waiting, err := s.Embedded.List("redisson_lock_queue:{x}")
			require.ErrorContains(t, err, "no such key", "%v", waiting)
		}
		require.NoError(t, held.Unlock(context.Background()))
	})
}
