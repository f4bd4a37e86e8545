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

// replicated waits until key is on the replica.
func replicated(t testing.TB, p redistest.Pair, key string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the replica has "+key, func() bool {
		return p.Replica.Ask(t, "EXISTS", key) == "1"
	})
}

// What a replica had received goes on after it was promoted: the hold is renewed there, who waited is served there, and
// a lock that was free can be acquired.
func TestLocksGoOnWhenAReplicaTakesOver(t *testing.T) {
	redistest.InFull(t, "TestAnOutageShorterThanTheLeaseIsSurvived")
	t.Parallel()
	for name, resumed := range map[string]bool{"killed": false, "stopped and resumed": true} {
		t.Run(name, func(t *testing.T) {
			eachReplicated(t, func(t *testing.T, s *redistest.Replicated) {
				o := rlock.Options{WatchdogTimeout: 24 * time.Second}
				here, there := dialled(t, s, o), dialled(t, s, o)
				p := s.Of("l")
				h := lock(t, here.Reentrant("l"), aMinute(t))
				waiter := pass(t, there.Reentrant("l"))
				replicated(t, p, "l")
				if resumed {
					p.Primary.Stop(t)
				} else {
					require.NoError(t, p.Primary.Process.Kill())
				}
				for _, c := range []*rlock.Client{here, there} { // which is answered by the heir
					free := lock(t, c.Reentrant("{l}:free"), aMinute(t))
					require.NoError(t, free.Unlock(aMinute(t)))
				}
				if resumed {
					p.Primary.Resume(t)
				}
				before := h.Until()
				redistest.Eventually(t, 40*time.Second, "renewed by the heir", func() bool {
					return h.Until().After(before) || h.Err() != nil
				})
				require.NoError(t, h.Err())
				select {
				case err := <-waiter:
					t.Fatal("a waiter was served while the lock was held: ", err)
				default:
				}
				require.NoError(t, h.Unlock(aMinute(t)))
				require.NoError(t, <-waiter)
				require.Equal(t, "0", p.Replica.Ask(t, "EXISTS", "l", "{l}:free"), "nothing is left with the heir")
			})
		})
	}
}

// What no replica had received is forgotten. Its holder is told when it meets the heir, not when the next renewal is
// due.
func TestTheHolderOfAGrantThatAFailoverForgotIsTold(t *testing.T) {
	redistest.InFull(t, "TestLossIsNoticedAtOnceWhereKeysAreTracked")
	eachReplicated(t, func(t *testing.T, s *redistest.Replicated) {
		c := dialled(t, s, rlock.Options{WatchdogTimeout: time.Hour})
		sure := dialled(t, s,
			rlock.Options{WatchdogTimeout: time.Hour, CallTimeout: 10 * time.Second, MinReplicas: 1,
				ReplicaTimeout: 100 * time.Millisecond})
		p := s.Of("l")
		kept := lock(t, c.Reentrant("{l}:kept"), aMinute(t))
		replicated(t, p, "{l}:kept")
		p.Replica.Stop(t)
		// what was sent already would be read after all when it goes on
		p.Primary.Ask(t, "CLIENT", "KILL", "TYPE", "replica")

		h := lock(t, c.Reentrant("l"), aMinute(t))
		_, err := sure.Reentrant("{l}:sure").TryLock(aMinute(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotReplicated)
		time.Sleep(200 * time.Millisecond) // its key is looked after from when it is 50 ms old
		require.NoError(t, p.Primary.Process.Kill())
		p.Replica.Resume(t)

		select {
		case <-h.Done():
		case <-aMinute(t).Done():
			t.Fatal("not told of the loss, an hour before the end of the lease")
		}
		require.ErrorIs(t, h.Err(), errs.ErrLost)
		again := lock(t, c.Reentrant("l"), aMinute(t))
		require.NoError(t, again.Unlock(aMinute(t)))
		require.NoError(t, kept.Err())
		require.NoError(t, kept.Unlock(aMinute(t)))
	})
}

// Two holders never work at once, however often primary and replica change places: in a Cluster, which has the replica
// catch up before, and behind sentinels, which do not, with MinReplicas.
func TestHoldersExcludeEachOtherWhilePrimaryAndReplicaSwap(t *testing.T) {
	redistest.InFull(t, "TestAHundredGoroutinesInFourProcessesExclude")
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
