package rsemaphore_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// impatient has a long CallTimeout, so that whatever is left for a call timeout is left for much longer than a busy
// machine takes for anything; and so are the lease and PollCap, so that neither mends it.
var impatient = rsemaphore.Options{CallTimeout: time.Minute, WatchdogTimeout: 10 * time.Minute,
	PollCap: 10 * time.Second}

// afterLeaving is how soon what a caller that left may have taken is free, and who waits has what is free: a few round
// trips, on a machine however busy, and less than the time after which a waiter asks by itself.
const afterLeaving = 8 * time.Second

// leavers are the ways to give up after up to 5 ms.
var leavers = map[string]func(f func(ctx context.Context, waitTime time.Duration)){
	"cancel": func(f func(context.Context, time.Duration)) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(rand.N(5*time.Millisecond), cancel)
		f(ctx, time.Hour)
		cancel()
	},
	"deadline": func(f func(context.Context, time.Duration)) {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(5*time.Millisecond))
		defer cancel()
		f(ctx, time.Hour)
	},
	"waitTime": func(f func(context.Context, time.Duration)) {
		f(context.Background(), rand.N(5*time.Millisecond))
	},
}

// tryPermit tries to acquire one permit of a semaphore of one, and returns how it is released; nil: it was not granted.
var tryPermit = map[string]func(c *rsemaphore.Client, ctx context.Context,
	waitTime time.Duration) (release func(context.Context) error){
	"Semaphore": func(c *rsemaphore.Client, ctx context.Context, waitTime time.Duration) func(context.Context) error {
		if p, err := c.Semaphore("s", 1).TryAcquire(ctx, 1, waitTime, 0); err == nil {
			return p.Release
		}
		return nil
	},
	"WeightedSemaphore": func(c *rsemaphore.Client, ctx context.Context,
		waitTime time.Duration) func(context.Context) error {
		if p, err := c.WeightedSemaphore("w", 1).TryAcquire(ctx, 1, waitTime, 0); err == nil {
			return p.Release
		}
		return nil
	},
	"CountingSemaphore": func(c *rsemaphore.Client, ctx context.Context,
		waitTime time.Duration) func(context.Context) error {
		s := c.CountingSemaphore("c")
		if s.TryAcquire(ctx, 1, waitTime) == nil {
			return func(ctx context.Context) error { return s.Release(ctx, 1) }
		}
		return nil
	},
}

// someWay are the kinds of tryPermit with each of the leavers; not in full, each with one of them.
func someWay(t *testing.T, fn func(t *testing.T, kind, way string)) {
	ways := slices.Sorted(maps.Keys(leavers))
	for i, kind := range slices.Sorted(maps.Keys(tryPermit)) {
		for w, way := range ways {
			if w == i || redistest.Long() {
				t.Run(kind+"/"+way, func(t *testing.T) { fn(t, kind, way) })
			}
		}
	}
}

// distant returns n processes that are a millisecond away from the server.
func distant(t *testing.T, srv *redistest.Server, n int) (rigs []*rig) {
	for range n {
		p := redistest.NewProxy(t, srv)
		r := newRig(t, p.Server(), impatient)
		require.NoError(t, r.c.CountingSemaphore("warm").Release(within(t), 1)) // connected
		take(t, r.c.Semaphore("warm semaphore", 100), 1)
		p.Delay(time.Millisecond, time.Millisecond)
		rigs = append(rigs, r)
	}
	return rigs
}

// Callers of three processes that give up within 5 ms, and one that waits for as long as it takes: at all times it has
// the permit soon after who had it released it, and when all have left the permit is free.
func TestWhoGivesUpWithinMillisecondsLeavesNoPermitTaken(t *testing.T) {
	t.Parallel()
	someWay(t, func(t *testing.T, kind, way string) {
		try, leave := tryPermit[kind], leavers[way]
		t.Parallel()
		srv := redistest.Start(t)
		direct := newRig(t, srv, patient)
		direct.must(t, "SET", "c", "1")
		rigs := distant(t, srv, 3)
		stop := make(chan struct{})
		var grants atomic.Int64
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					leave(func(ctx context.Context, waitTime time.Duration) {
						if release := try(rigs[i%3].c, ctx, waitTime); release != nil {
							grants.Add(1)
							if err := release(context.Background()); err != nil {
								t.Error(err)
							}
						}
					})
				}
			})
		}
		var worst time.Duration
		for range redistest.Sized(5, 5, 20) {
			began := time.Now()
			release := try(rigs[0].c, within(t), time.Hour)
			require.NotNil(t, release)
			worst = max(worst, time.Since(began))
			require.NoError(t, release(within(t)))
		}
		close(stop)
		wg.Wait()
		began := time.Now()
		release := try(direct.c, within(t), time.Hour)
		require.NotNil(t, release)
		worst = max(worst, time.Since(began))
		require.NoError(t, release(within(t)))
		t.Logf("%d impatient grants; the patient one waited for %v at most", grants.Load(), worst)
		require.Less(t, worst, afterLeaving)
	})
}

// One caller at a time, which nobody follows: whatever it may have taken is given back when it has left.
func TestACallThatIsGivenUpLeavesNoPermitTakenThoughNobodyWaits(t *testing.T) {
	t.Parallel()
	someWay(t, func(t *testing.T, kind, way string) {
		try, leave := tryPermit[kind], leavers[way]
		t.Parallel()
		srv := redistest.Start(t)
		direct := newRig(t, srv, patient)
		direct.must(t, "SET", "c", "1")
		r := distant(t, srv, 1)[0]
		var worst time.Duration
		for range redistest.Sized(20, 20, 40) {
			leave(func(ctx context.Context, waitTime time.Duration) {
				if release := try(r.c, ctx, waitTime); release != nil {
					require.NoError(t, release(context.Background()))
				}
			})
			began := time.Now()
			redistest.Eventually(t, 30*time.Second, "free", func() bool {
				release := try(direct.c, within(t), 0)
				return release != nil && release(within(t)) == nil
			})
			worst = max(worst, time.Since(began))
		}
		t.Logf("taken by nobody for %v at most", worst)
		require.Less(t, worst, afterLeaving)
	})
}

// Waiters for a latch come and go while it is closed. When it opens those that stayed return.
func TestWhoGivesUpWaitingForALatchKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"cancel", "deadline"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			direct := newRig(t, srv, patient)
			rigs := distant(t, srv, 3)
			var worst time.Duration
			for range 5 {
				require.True(t, must1[bool](t)(direct.c.CountDownLatch("l").TrySetCount(within(t), 1, 0)))
				var wg sync.WaitGroup
				done := make(chan error, len(rigs))
				for _, r := range rigs {
					go func() { done <- r.c.CountDownLatch("l").Await(within(t)) }()
					for range 4 {
						wg.Go(func() {
							for range 10 {
								leavers[way](func(ctx context.Context, _ time.Duration) { r.c.CountDownLatch("l").Await(ctx) })
							}
						})
					}
				}
				time.Sleep(rand.N(20 * time.Millisecond)) // some instant of theirs
				must1[int64](t)(direct.c.CountDownLatch("l").CountDown(within(t)))
				began := time.Now()
				for range rigs {
					require.NoError(t, <-done)
				}
				worst = max(worst, time.Since(began))
				wg.Wait()
			}
			t.Logf("told within %v", worst)
			require.Less(t, worst, afterLeaving)
		})
	}
}

// A party that gives up breaks its generation, if it has arrived. Those that had arrived learn of it, nobody is left in
// it, and the next generation fills.
func TestWhoGivesUpAtABarrierKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"cancel", "deadline"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			direct := newRig(t, srv, patient)
			rigs := distant(t, srv, 3)
			var worst time.Duration
			for range redistest.Sized(15, 15, 30) {
				done := make(chan error, 1)
				go func() { done <- errOf(rigs[0].c.CyclicBarrier("b", 3).Await(within(t))) }()
				redistest.Eventually(t, 20*time.Second, "one has arrived", func() bool { return gatheredAt(t, direct) == 1 })
				leavers[way](func(ctx context.Context, _ time.Duration) { rigs[1].c.CyclicBarrier("b", 3).Await(ctx) })
				began := time.Now()
				redistest.Eventually(t, 20*time.Second, "the one that left is gone", func() bool {
					return gatheredAt(t, direct) < 2
				})
				ctx, leave := context.WithCancel(within(t))
				if gatheredAt(t, direct) == 1 { // it had not arrived
					for _, r := range rigs[1:] {
						go r.c.CyclicBarrier("b", 3).Await(ctx)
					}
				}
				err := <-done
				leave() // the request of the one that left may have come after all, and one of these two waits by itself
				if err != nil {
					require.ErrorIs(t, err, rsemaphore.ErrBrokenBarrier)
				}
				worst = max(worst, time.Since(began))
				redistest.Eventually(t, 20*time.Second, "nobody is there", func() bool { return gatheredAt(t, direct) == 0 })
			}
			t.Logf("told within %v", worst)
			require.Less(t, worst, afterLeaving)
		})
	}
}

// gatheredAt is how many have arrived at b.
func gatheredAt(t *testing.T, r *rig) int {
	t.Helper()
	return must1[rsemaphore.BarrierState](t)(r.c.CyclicBarrier("b", 3).Inspect(within(t))).Waiting
}
