package rlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

func TestStatsCountWhatIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	const waiters = 5
	r := newRig(t, redistest.Embedded(t), rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: time.Minute})
	is := func(held, waiting int) {
		t.Helper()
		require.Eventually(t, func() bool {
			s := r.locks.Stats()
			return s.Held == held && s.Waiting == waiting
		}, 30*time.Second, time.Millisecond, "%d held, %d waiting", held, waiting)
	}
	is(0, 0)
	ctx := within(t)
	lock := r.locks.Reentrant("l")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	again, err := lock.Lock(hold.Context(ctx))
	require.NoError(t, err)
	other, err := r.locks.Reentrant("free").Lock(ctx)
	require.NoError(t, err)
	is(2, 0)

	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			hold, err := lock.Lock(ctx)
			if err == nil {
				err = hold.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	is(2, waiters)
	require.NoError(t, other.Unlock(ctx))
	is(1, waiters)
	require.NoError(t, again.Unlock(ctx))
	require.NoError(t, hold.Unlock(ctx))
	all.Wait()
	is(0, 0)
	require.LessOrEqual(t, r.locks.Stats().HandOvers, int64(waiters))
}

func TestStatsCountHandOvers(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: time.Minute})
	ctx := within(t)
	lock := r.locks.Reentrant("l")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	require.Zero(t, r.locks.Stats().HandOvers)
	// a waiter may ask by itself just when the lock is released
	for rounds := int64(1); r.locks.Stats().HandOvers == 0; rounds++ {
		next := make(chan *rlock.Hold)
		go func() {
			h, err := lock.Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
		require.Eventually(t, func() bool { return r.locks.Waiting("l") == 1 }, 30*time.Second, time.Millisecond)
		require.NoError(t, hold.Unlock(ctx))
		hold = <-next
		require.NotNil(t, hold)
		require.LessOrEqual(t, r.locks.Stats().HandOvers, rounds)
	}
	require.NoError(t, hold.Unlock(ctx))
}

func TestStatsCountTheReleasesThatTheServerHasNotConfirmed(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Embedded(t))
	r := newRig(t, proxy.Server(), rlock.Options{WatchdogTimeout: time.Minute})
	hold, err := r.locks.Reentrant("l").Lock(within(t))
	require.NoError(t, err)
	require.Zero(t, r.locks.Stats().PendingReleases)
	proxy.Refuse()
	proxy.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, hold.Unlock(ctx))
	require.Equal(t, 1, r.locks.Stats().PendingReleases)
	proxy.Heal()
	require.Eventually(t, func() bool { return r.locks.Stats().PendingReleases == 0 }, 30*time.Second, time.Millisecond)
}

func TestAnObserverAndAnotherAreToldInTurn(t *testing.T) {
	t.Parallel()
	var told []string
	observer := func(who string, kinds ...rlock.EventKind) rlock.Observer {
		return func(_ context.Context, e rlock.Event) context.Context {
			if slices.Contains(kinds, e.Kind) {
				told = append(told, who+" "+string(e.Kind))
			}
			return nil
		}
	}
	first, second := observer("first", rlock.EventAcquired, rlock.EventReleased), observer("second", rlock.EventAcquired)
	var none rlock.Observer
	require.Nil(t, session.Chain(none, nil))
	r := newRig(t, redistest.Embedded(t),
		rlock.Options{CallTimeout: 20 * time.Second,
			Observer: session.Chain(session.Chain(session.Chain(none, first), second), none)})
	hold, err := r.locks.Reentrant("l").Lock(within(t))
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(within(t)))
	require.Equal(t, []string{"first acquired", "second acquired", "first released"}, told)
}
