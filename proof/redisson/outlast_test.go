package interop_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// slow is a PollCap of waiters that only a message has ask in time.
const slow = 8 * time.Second

// queuedUp waits until so many of ours wait for a lock.
func (r *rig) queuedUp(t *testing.T, name string, n int) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, "they are in line", func() bool {
		st := redistest.NoError(r.locks.Reentrant(name).Inspect(within(t)))(t)
		return len(st.Waiters) == n
	})
}

// leaving has a goroutine wait for a lock, as the n-th in line, until leave.
func leaving(t *testing.T, r *rig, l *rlock.Lock, n int) (had <-chan taken, leave func()) {
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan taken, 1)
	go func() {
		h, err := l.Lock(ctx)
		done <- taken{h, err, time.Now()}
	}()
	r.queuedUp(t, l.Name(), n)
	return done, func() {
		cancel()
		require.Error(t, (<-done).err)
	}
}

// comesSoon releases what Java holds, and has the waiter have it soon.
func (w *world) comesSoon(t *testing.T, java *lane, kind, name string, waiter <-chan taken) {
	t.Helper()
	w.quiet(t)
	began := time.Now()
	java.do(t, "unlock", kind, name)
	g := <-waiter
	require.NoError(t, g.err)
	t.Log("after", g.at.Sub(began))
	require.Less(t, g.at.Sub(began), soon)
	release(t, g.hold)
}

// TestJavaHolder_AfterOurs_WakesTheFirst: a waiter of ours has asked while one of ours held the lock. Then Java holds
// it, and only publishes its release.
func TestJavaHolder_AfterOurs_WakesTheFirst(t *testing.T) {
	each(t, []place{newestAlone, newestCluster}, func(t *testing.T, w *world) {
		first, r := w.rigOf(t, slow, 0), w.rigOf(t, slow, 0)
		for what, writers := range map[string]int{"a reader outlasts ours": 1, "the first writer gives up": 2} {
			t.Run(what, func(t *testing.T) {
				name, java := unique(t, "outlast"), w.lane(t)
				ours, leave := hold(t, first.lock("read", name), within(t)), func() {}
				if writers == 2 {
					_, leave = leaving(t, first, first.lock("write", name), 1)
				}
				writer := waiting(t, r.lock("write", name))
				r.queuedUp(t, name, writers)
				java.do(t, "lock", "read", name, -1)
				release(t, ours)
				leave()
				w.comesSoon(t, java, "read", name, writer)
			})
		}
		for _, kind := range []string{"lock", "fenced", "write"} {
			t.Run("Java takes what is left to it, and the first gives up: "+kind, func(t *testing.T) {
				w.takesWhatIsLeft(t, first, r, kind)
			})
		}
		t.Run("fair, the one behind Java gives up", func(t *testing.T) {
			name, java := unique(t, "outlast"), w.lane(t)
			ours := hold(t, first.lock("fair", name), within(t))
			theirs := java.send("lock", "fair", name, -1)
			r.queuedUp(t, name, 1)
			_, leave := leaving(t, first, first.lock("fair", name), 2)
			waiter := waiting(t, r.lock("fair", name))
			r.queuedUp(t, name, 3)
			leave()
			release(t, ours)
			got(t, theirs)
			w.comesSoon(t, java, "fair", name, waiter)
		})
		t.Run("a permit of Java's outlasts ours", func(t *testing.T) {
			name, java := unique(t, "permit"), w.lane(t)
			ours := redistest.NoError(first.sems.Semaphore(name, 2).Shared().Acquire(within(t), 1))(t)
			s, both, ctx := r.sems.Semaphore(name, 2).Shared(), make(chan error, 1), within(t)
			go func() { _, err := s.Acquire(ctx, 2); both <- err }()
			w.listening(t, name) // of the channel of a shared semaphore all waiters are listeners
			id := java.do(t, "permit.acquire", name, time.Minute.Milliseconds())
			require.NoError(t, ours.Release(within(t)))
			w.quiet(t)
			began := time.Now()
			java.do(t, "permit.release", name, id)
			require.NoError(t, <-both)
			t.Log("after", time.Since(began))
			require.Less(t, time.Since(began), soon)
		})
	})
}

// takesWhatIsLeft plays until Java has the lock that a release of ours has left to it. That is one release in eight.
func (w *world) takesWhatIsLeft(t *testing.T, first, r *rig, kind string) {
	outside := w.rig(t)
	for range 300 {
		name, java := unique(t, "left"), w.lane(t)
		ours := hold(t, outside.lock(kind, name), within(t))
		had, leave := leaving(t, first, first.lock(kind, name), 1)
		waiter := waiting(t, r.lock(kind, name))
		r.queuedUp(t, name, 2)
		theirs := java.send("lock", kind, name, -1)
		w.listening(t, name)
		release(t, ours)
		select {
		case reply := <-theirs:
			require.NoError(t, reply.Err)
			leave()
			w.comesSoon(t, java, kind, name, waiter)
			return
		case g := <-had:
			require.NoError(t, g.err)
			release(t, g.hold)
		}
		for range 2 { // the others, in any order
			select {
			case reply := <-theirs:
				require.NoError(t, reply.Err)
				java.do(t, "unlock", kind, name)
			case g := <-waiter:
				require.NoError(t, g.err)
				release(t, g.hold)
			}
		}
	}
	t.Fatal("Java has had none of 300")
}

// TestCrowdOfOurs_BesideJava_BothAreServed: callers in two of our processes and one thread of Java take turns without a
// pause. Java is in no queue of ours: it is served, because each end of a tenure is open to a Redisson that waits. Ours
// have the lock again and again, though only messages have them ask.
func TestCrowdOfOurs_BesideJava_BothAreServed(t *testing.T) {
	each(t, []place{newestAlone}, func(t *testing.T, w *world) {
		for _, c := range []struct {
			java            string
			ours            []string
			callers, rounds int
		}{
			{"lock", []string{"lock"}, 64, 30},
			{"write", []string{"read"}, 16, 3},
			{"write", []string{"write", "read", "read"}, 12, 3},
			{"read", []string{"write", "read", "read"}, 64, 30},
		} {
			t.Run(c.java+" beside "+strings.Join(c.ours, " "), func(t *testing.T) {
				name, java, rigs := unique(t, "crowd"), w.lane(t), []*rig{w.rigOf(t, slow, 0), w.rigOf(t, slow, 0)}
				ctx, cancel := context.WithCancel(within(t))
				defer cancel()
				var mu sync.Mutex
				last, longest, had := time.Now(), time.Duration(0), 0
				count := func() int {
					mu.Lock()
					defer mu.Unlock()
					return had
				}
				var wg sync.WaitGroup
				for i := range c.callers {
					l := rigs[i%2].lock(c.ours[i%len(c.ours)], name)
					wg.Go(func() {
						for ctx.Err() == nil {
							h, err := l.Lock(ctx)
							if err != nil {
								return
							}
							mu.Lock()
							longest, last, had = max(longest, time.Since(last)), time.Now(), had+1
							mu.Unlock()
							time.Sleep(time.Millisecond)
							if err := h.Unlock(context.Background()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				redistest.Eventually(t, 30*time.Second, "ours get on", func() bool { return count() > 50 })
				before, waits := count(), make([]time.Duration, c.rounds)
				for i := range waits {
					began := time.Now()
					java.do(t, "lock", c.java, name, -1)
					waits[i] = time.Since(began)
					java.do(t, "unlock", c.java, name)
				}
				redistest.Eventually(t, 30*time.Second, "ours get on afterwards", func() bool { return count() > before })
				cancel()
				wg.Wait()
				slices.Sort(waits)
				t.Logf("ours had it %d times and waited %v at most, Java %v in the median, %v at most", count(), longest,
					waits[c.rounds/2], waits[c.rounds-1])
				require.Less(t, waits[c.rounds/2], soon)
				require.Less(t, longest, soon/2)
			})
		}
	})
}
