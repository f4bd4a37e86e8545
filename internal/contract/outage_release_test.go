package contract_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// releases are what gives back what was acquired now.
func releases(t *testing.T, red *redlatch.Client) verbs {
	ctx, all := t.Context(), verbs{}
	locks, permits := red.Locks(), red.Semaphores()
	for kind, l := range map[string]*rlock.Lock{
		"Reentrant": locks.Reentrant("l"), "Fenced": locks.Fenced("f"), "Fair": locks.Fair("fair"), "Plain": locks.Plain("p"),
		"Read": locks.ReadWrite("r").Read(), "Write": locks.ReadWrite("w").Write(),
	} {
		hold, err := l.Lock(ctx)
		require.NoError(t, err, kind)
		all["Hold.Unlock of "+kind] = hold.Unlock
	}
	kept := redistest.NoError(locks.Reentrant("kept").Lock(ctx))(t)
	all["Hold.UnlockAfter"] = func(ctx context.Context) error { return kept.UnlockAfter(ctx, time.Hour) }
	permit := redistest.NoError(permits.Semaphore("semaphore", 1).Acquire(ctx, 1))(t)
	all["Permit.Release"] = permit.Release
	weight := redistest.NoError(permits.WeightedSemaphore("weighted", 9).Acquire(ctx, 3))(t)
	all["Permit.Release of weights"] = weight.Release
	leader := redistest.NoError(red.Elections().Election("election").Campaign(ctx, ""))(t)
	all["Leadership.Resign"] = leader.Resign
	require.NoError(t, keeping(all, nil))
	return all
}

// What is given back goes on for as long as it may: the caller says how long it stays.
func TestOutage_Release_EndsWithItsContextOrItsLease(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	ended, end := context.WithCancel(context.Background())
	end()
	for what, x := range map[string]struct {
		ctx     func() (context.Context, context.CancelFunc)
		lease   time.Duration
		bound   time.Duration
		waiting bool // until then: the server might be back
	}{
		"a deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 3*callTimeout)
		}, 12 * callTimeout, 3 * callTimeout, true},
		"a context that has ended": {func() (context.Context, context.CancelFunc) {
			return ended, func() {}
		}, 12 * callTimeout, time.Second, false},
		"no end": {func() (context.Context, context.CancelFunc) {
			return context.Background(), func() {}
		}, 4 * callTimeout, 4 * callTimeout, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachOutage(t, func(t *testing.T, _ string, connect func(redlatch.Options) *redlatch.Client, begin, _ func()) {
				o := redlatch.Options{CallTimeout: callTimeout * 4 / 5,
					Locks:      func(o *rlock.Options) { o.WatchdogTimeout = x.lease },
					Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = x.lease },
					Elections:  func(o *election.Options) { o.WatchdogTimeout = x.lease }}
				all := releases(t, connect(o))
				counting := counting.New(connect(o).Semaphores(), "counting")
				redistest.Eventually(t, time.Minute, "a semaphore is there", func() bool {
					return counting.Release(t.Context(), 1) == nil
				})
				const parts = "CountingSemaphore.Release"
				all[parts] = func(ctx context.Context) error { return counting.Release(ctx, 1) }
				begin()
				ctx, cancel := x.ctx()
				defer cancel()
				results, stall := all.all(ctx)
				for verb, r := range results {
					bound := x.bound
					if verb == parts { // which have no lease
						bound = min(bound, 5*o.CallTimeout)
					}
					require.Error(t, r.err, verb)
					require.Less(t, r.took, soon(bound, stall), verb)
					if x.waiting && verb != parts {
						require.Greater(t, r.took, x.bound/2, verb)
					}
				}
			})
		})
	}
}
