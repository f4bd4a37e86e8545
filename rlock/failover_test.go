package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// eachReplicated runs fn behind sentinels and in a Cluster.
func eachReplicated(t *testing.T, fn func(t *testing.T, s *redistest.Replicated)) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) { t.Parallel(); fn(t, redistest.Sentinel(t)) })
	t.Run("Cluster", func(t *testing.T) { t.Parallel(); fn(t, redistest.ReplicatedCluster(t)) })
}

// dialled is a client as most programs make it.
func dialled(t testing.TB, s *redistest.Replicated, o rlock.Options) *rlock.Client {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	hub, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	c, err := rlock.New(hub, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
	})
	return c
}

// aMinute is for what may have to wait for a failover on a machine that is busy.
func aMinute(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Two holders never work at once, however often primary and replica change places: in a Cluster, which has the replica
// catch up before, and behind sentinels, which do not, with MinReplicas.
func TestHolders_PrimaryAndReplicaSwap_ExcludeEachOther(t *testing.T) {
	redistest.InFull(t, "TestSharedCalls_AmongContendedLocks_KeepExclusion")
	eachReplicated(t, func(t *testing.T, s *redistest.Replicated) {
		o := rlock.Options{WatchdogTimeout: 6 * time.Second, CallTimeout: time.Second}
		if len(s.Pairs) == 1 {
			o.MinReplicas, o.ReplicaTimeout = 1, 200*time.Millisecond
		}
		p := s.Of("l")
		ctx, stop := context.WithCancel(aMinute(t))
		defer stop()
		var inside atomic.Pointer[rlock.Hold]
		var grants, losses, refused atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			l := dialled(t, s, o).Reentrant("l")
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						h, err := l.Lock(ctx)
						if err != nil {
							refused.Add(1)
							continue
						}
						grants.Add(1)
						if other := inside.Swap(h); other != nil && other.Err() == nil {
							t.Errorf("%v was granted while %v held", h, other)
						}
						select {
						case <-h.Done():
							losses.Add(1)
						case <-time.After(time.Millisecond):
						}
						inside.CompareAndSwap(h, nil)
						if err := h.Unlock(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, errs.ErrLost) {
							refused.Add(1)
						}
					}
				})
			}
		}
		enough := func(n int64) func() bool {
			from := grants.Load()
			return func() bool { return grants.Load() >= from+n }
		}
		redistest.Eventually(t, 30*time.Second, "grants", enough(100))
		for i := range 3 {
			s.Switch(t, p)
			p.Primary, p.Replica = p.Replica, p.Primary
			redistest.Eventually(t, 40*time.Second, "grants after change "+strconv.Itoa(i+1), enough(50))
		}
		stop()
		wg.Wait()
		t.Logf("%d grants, %d holds lost, %d times an error", grants.Load(), losses.Load(), refused.Load())
	})
}
