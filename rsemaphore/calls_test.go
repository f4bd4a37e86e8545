package rsemaphore_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	sending "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rsemaphore"
)

// After each fault the waiters of a process for one semaphore ask in as few calls as before it. Calls are counted in
// the seconds after the fault, in which all are told at once that something was missed.
func TestCallsAfterAFault_ManyWaiters_StayFew(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		const waiters, window = 300, 3 * time.Second
		proxy := redistest.NewProxy(t, servers[0])
		holder := newRig(t, servers[0], rsemaphore.Options{})
		p := redistest.NoError(holder.c.Semaphore("s", 1).Acquire(context.Background(), 1))(t)
		sent := &sending.Counting{Client: proxy.Server().Client(t)}
		r := newRigOn(t, proxy.Server(), sent, rsemaphore.Options{CallTimeout: 500 * time.Millisecond})
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() {
				if p, err := r.c.Semaphore("s", 1).Acquire(ctx, 1); err == nil {
					_ = p.Release(context.Background())
				}
			})
		}
		time.Sleep(3 * time.Second)
		counted := func() int64 {
			before := sent.Sent.Load()
			time.Sleep(window)
			return sent.Sent.Load() - before
		}
		calm := counted()
		require.Positive(t, calm)
		for _, fault := range []struct {
			name string
			do   func()
		}{
			{"a stall", func() { proxy.Hold(redistest.Up); time.Sleep(1200 * time.Millisecond); proxy.Heal() }},
			{"a long stall", func() { proxy.Hold(redistest.Up); time.Sleep(4 * time.Second); proxy.Heal() }},
			{"a black hole", func() { proxy.BlackHole(redistest.Up); time.Sleep(2 * time.Second); proxy.Heal() }},
			{"a reset", func() { proxy.Cut() }},
			{"no server", func() { proxy.Refuse(); proxy.Cut(); time.Sleep(2 * time.Second); proxy.Heal() }},
			{"scripts forgotten", func() { holder.must(t, "SCRIPT", "FLUSH") }},
			{"a queue that is lost", func() { holder.must(t, "DEL", queueKey) }},
		} {
			fault.do()
			after := counted()
			t.Logf("%d calls in %v of calm, %d after %s", calm, window, after, fault.name)
			require.LessOrEqual(t, after, 3*calm+10, "after %s", fault.name)
			time.Sleep(time.Second)
		}
		require.NoError(t, p.Release(context.Background()))
		synctest.Wait()
		stop()
		all.Wait()
	})
}
