package rlock_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// each runs fn for 0 to n-1 on a few goroutines.
func each(n int, fn func(i int)) {
	const workers = 16
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}

func heap() (bytes uint64) {
	collect()
	collect()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestHolds_Thousands_CostLittle(t *testing.T) {
	redistest.SkipShort(t)
	// than at the default lease, for which a small machine has time when there are few
	n, faster := redistest.Sized(5_000, 5_000, 100_000), redistest.Sized(8, 8, 1)
	r := newRig(t, redistest.Start(t),
		rlock.Options{WatchdogTimeout: rlock.DefaultWatchdogTimeout / time.Duration(faster)})
	for range 3 { // connections, the watchdog, what a first acquisition starts
		each(64, func(i int) {
			if err := r.locks.Reentrant(fmt.Sprint("warm", i)).Do(within(t), func(context.Context) error {
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	long := lock(t, r.locks.Reentrant("long"), within(t))
	tracked(t, r.redis, 1)
	holds, names := make([]*rlock.Hold, n), make([]string, n) // the user's
	for i := range names {
		names[i] = "order:" + strconv.Itoa(i)
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	each(n, func(i int) {
		var err error
		if holds[i], err = r.locks.Reentrant(names[i]).Lock(context.Background()); err != nil {
			t.Error(err)
		}
	})
	require.False(t, t.Failed())
	held := heap()
	began := time.Now()
	calls := redistest.CommandCalls(t, r.redis)["evalsha"]
	busiest := 0
	perHold := func() float64 { return float64(held-min(held, before)) / float64(n) }
	// the period of renewals, and on a busy machine until there is a moment without so many of them
	for i := 0; time.Since(began) < 10*time.Second/time.Duration(faster) ||
		perHold() >= 1024 && time.Since(began) < time.Minute; i++ {
		busiest = max(busiest, runtime.NumGoroutine())
		if i%4 == 0 {
			held = min(held, heap()) // the holds, and what renewals under way need for a moment: the least is the holds'
		}
		time.Sleep(50 * time.Millisecond)
	}
	perLock := perHold()
	rate := float64(redistest.CommandCalls(t, r.redis)["evalsha"]-calls) / time.Since(began).Seconds() / float64(faster)
	t.Logf("%d held locks: %.0f bytes of heap each, %.0f script calls/s at the default lease, %d goroutines more at most",
		n, perLock, rate, busiest-goroutines)
	require.Less(t, perLock, 1024.)
	require.Less(t, rate, max(200*float64(n)/100_000, 40))
	require.Less(t, busiest-goroutines, 150, "a few for each renewal call under way, of which there are 32 at most")
	for _, h := range append(holds, long) {
		require.NoError(t, h.Err())
	}
	each(n, func(i int) {
		if err := holds[i].Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, long.Unlock(within(t)))
}

func TestNames_UsedOnce_LeaveNothing(t *testing.T) {
	redistest.SkipShort(t)
	n := redistest.Sized(6_000, 6_000, 1_000_000)
	r := newRig(t, redistest.Start(t), rlock.Options{})
	use := func(from, n int) {
		each(n, func(i int) {
			err := r.locks.Reentrant("once:"+strconv.Itoa(from+i)).Do(context.Background(), func(context.Context) error {
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	use(0, 2000)
	before := heap()
	use(2000, n)
	var after uint64
	redistest.Eventually(t, 20*time.Second, "the heap is where it was", func() bool {
		after = heap()
		// a connection more or less is little; a map's entry for each name would be more than this
		return after < before+1<<20
	})
	t.Logf("%d names: %d bytes of heap before, %d after", n, before, after)
	require.Zero(t, r.locks.Lines())
}
