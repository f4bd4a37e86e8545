package interop_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// soon is well under the lease, 30 s, and under pollCap: only a message is that quick.
const soon = 5 * time.Second

// wakeups are the kinds that tell their waiters by message.
var wakeups = []struct{ holder, waiter string }{
	{"lock", "lock"},
	{"lock", "fenced"},
	{"fenced", "fenced"},
	{"fenced", "lock"},
	{"fair", "fair"},
	{"write", "write"},
	{"write", "read"},
	{"read", "write"},
}

func TestAJavaWaiterIsWokenByOurRelease(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		kinds := append(wakeups, struct{ holder, waiter string }{"spin", "lock"},
			struct{ holder, waiter string }{"once", "lock"})
		for _, k := range kinds {
			t.Run(k.holder+" "+k.waiter, func(t *testing.T) {
				name := unique(t, "wake")
				java := w.lane(t)
				h := hold(t, r.lock(k.holder, name), within(t))
				waiter := java.send("lock", k.waiter, name, -1)
				w.listening(t, name)
				require.Empty(t, waiter)
				release(t, h)
				_, after := got(t, waiter)
				require.Less(t, after, soon)
				t.Log("after", after)
				refused(t, r.lock(k.holder, name))
				java.do(t, "unlock", k.waiter, name)
				free(t, r.lock(k.holder, name))
			})
		}
	})
}

func TestOurWaiterIsWokenByAJavaRelease(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, k := range wakeups {
			t.Run(k.holder+" "+k.waiter, func(t *testing.T) {
				name := unique(t, "wake")
				java := w.lane(t)
				java.do(t, "lock", k.holder, name, -1)
				waiter := waiting(t, r.lock(k.waiter, name))
				w.listening(t, name)
				require.Empty(t, waiter)
				java.do(t, "unlock", k.holder, name)
				began := time.Now()
				g := <-waiter
				require.NoError(t, g.err)
				require.Less(t, g.at.Sub(began), soon)
				t.Log("after", g.at.Sub(began))
				require.Equal(t, "false", java.do(t, "trynow", k.holder, name))
				release(t, g.hold)
				require.Equal(t, "true", java.do(t, "trynow", k.holder, name))
				java.do(t, "unlock", k.holder, name)
			})
		}
	})
}

// TestAJavaSpinLocksReleaseIsFoundByLooking: it publishes nothing, so PollCap is what our waiters wait.
func TestAJavaSpinLocksReleaseIsFoundByLooking(t *testing.T) {
	each(t, []place{newestAlone, newestCluster, olderAlone}, func(t *testing.T, w *world) {
		r := w.rigOf(t, time.Second, 0)
		for _, kind := range []string{"lock", "spin", "fenced"} {
			name, java := unique(t, "spin"), w.lane(t)
			java.do(t, "lock", "spin", name, -1)
			waiter := waiting(t, r.lock(kind, name))
			refused(t, r.lock(kind, name))
			java.do(t, "unlock", "spin", name)
			began := time.Now()
			g := <-waiter
			require.NoError(t, g.err)
			require.Less(t, g.at.Sub(began), time.Second+soon)
			release(t, g.hold)
		}
	})
}

// TestJavaIsServedInACrowdOfOurs: while many of ours want the lock all the time, in two processes, each end of a tenure
// is open to a Redisson that waits, so it is served within a few of them.
func TestJavaIsServedInACrowdOfOurs(t *testing.T) {
	each(t, []place{newestAlone}, func(t *testing.T, w *world) {
		name, java := unique(t, "crowd"), w.lane(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var wg sync.WaitGroup
		var ours atomic.Int64
		for range 2 {
			l := w.rig(t).lock("lock", name)
			for range 32 {
				wg.Go(func() {
					for ctx.Err() == nil {
						h, err := l.Lock(ctx)
						if err != nil {
							return
						}
						time.Sleep(100 * time.Microsecond)
						if err := h.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
						ours.Add(1)
					}
				})
			}
		}
		redistest.Eventually(t, 30*time.Second, "ours get on", func() bool { return ours.Load() > 500 })
		const rounds = 30
		waits, before := make([]time.Duration, rounds), ours.Load()
		for i := range waits {
			began := time.Now()
			java.do(t, "lock", "lock", name, -1)
			waits[i] = time.Since(began)
			java.do(t, "unlock", "lock", name)
		}
		beside := ours.Load() - before
		cancel()
		wg.Wait()
		slices.Sort(waits)
		t.Logf("java waits %v in the median, %v at most, beside %d of ours", waits[rounds/2], waits[rounds-1], beside)
		require.Less(t, waits[rounds/2], soon)
	})
}
