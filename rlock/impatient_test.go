package rlock_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// usual are the default options: the rigs of other tests have a longer CallTimeout.
var usual = rlock.Options{CallTimeout: 500 * time.Millisecond}

// queueing are the locks whose waiters queue, by kind.
var queueing = map[string]func(c *rlock.Client, name string) *rlock.Lock{
	"Reentrant": (*rlock.Client).Reentrant,
	"Fenced":    (*rlock.Client).Fenced,
	"Fair":      (*rlock.Client).Fair,
	"Plain":     (*rlock.Client).Plain,
	"Write":     func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() },
}

// patient is a longer CallTimeout than any bound of these tests, and a PollCap: what waits for either is seen.
var patient = rlock.Options{CallTimeout: 5 * time.Second, PollCap: 10 * time.Second}

// soon bounds what takes some round trips, on a machine however busy. Without the rules that these tests are about it
// is CallTimeout.
const soon = 2 * time.Second

// all are the locks of every kind of one client.
var all = map[string]func(c *rlock.Client, name string) *rlock.Lock{
	"NonReentrant": (*rlock.Client).NonReentrant,
	"Spin":         func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) },
	"Read":         func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() },
	"Multi": func(c *rlock.Client, name string) *rlock.Lock {
		l, _ := rlock.Multi(c.Reentrant(name), c.Reentrant(name+"'"))
		return l
	},
}

func init() { maps.Copy(all, queueing) }

// A caller's context ends in any moment of its call: before the request is sent, while it is under way, after its
// reply.
func TestACancelledCallLeavesAFreeLockFree(t *testing.T) {
	t.Parallel()
	kinds := maps.Clone(all)
	kinds["Reentrant that does not wait"] = func(c *rlock.Client, name string) *rlock.Lock {
		return c.Reentrant(name).WithWait(0)
	}
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			r := newRig(t, s, patient)
			failed := 0
			for n := 0; failed < redistest.Sized(8, 8, 1000) && n < 100000; n++ {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Duration(n%40)*10*time.Microsecond, cancel)
				h, err := of(r.locks, "x").Lock(ctx)
				cancel()
				if err == nil {
					require.NoError(t, h.Unlock(context.Background()))
					continue
				}
				failed++
				began := time.Now()
				if kind == "Read" { // that a reader holds it is seen by writers
					of = all["Write"]
				}
				h, err = of(r.locks, "x").WithWait(time.Minute).Lock(context.Background())
				of = kinds[kind]
				require.NoError(t, err)
				require.Less(t, time.Since(began), soon, "it is free, after %d calls of which %d were cancelled", n+1, failed)
				require.NoError(t, h.Unlock(context.Background()))
			}
		})
	}
}

// Each of three processes has one patient caller, and others that give up, for one lock.
func TestALockIsNotIdleWhileCallersGiveUp(t *testing.T) {
	t.Parallel()
	ways := slices.Sorted(maps.Keys(redistest.GiveUp))
	for i, kind := range slices.Sorted(maps.Keys(all)) {
		s := redistest.Start(t)
		for w, way := range ways {
			if w != i%len(ways) && !redistest.Long() {
				continue // each kind in one of the ways
			}
			t.Run(kind+"/"+way, func(t *testing.T) {
				var processes []redistest.Take
				for range 3 {
					processes = append(processes, taking(all[kind](newRig(t, s, patient).locks, way)))
				}
				redistest.NotIdle(t, soon, way, processes...)
			})
		}
	}
}

// A Quorum's votes are given back by each that has too few.
func TestAQuorumIsNotIdleWhileCallersGiveUp(t *testing.T) {
	redistest.SkipShort(t)
	servers := started(t, 3)
	t.Parallel()
	servers.voting(t)
	o := patient
	o.WatchdogTimeout = time.Second
	for way := range redistest.GiveUp {
		var processes []redistest.Take
		for range 3 {
			processes = append(processes, taking(servers.process(t, o).lock(t, way)))
		}
		redistest.NotIdle(t, soon, way, processes...)
	}
}

func taking(l *rlock.Lock) redistest.Take {
	return func(ctx context.Context, wait time.Duration) (func(), error) {
		l := l
		if wait > 0 {
			l = l.WithWait(wait)
		}
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() { h.Unlock(context.Background()) }, nil
	}
}

// Three processes have a patient waiter and three that give up after up to 5 ms, for each of some locks. A release
// names a waiter of its process until that one's time is over, and the server counts in whole milliseconds, so it may
// hand the lock over up to a millisecond later: after what this waiter has left behind was released.
//
//	releasing process                   waiter of the same process         server
//	names the waiter, until 398.0
//	                                    398.0: gives up; releases   --->   nothing is there to release
//	                                                                       398.7, that is 398: hands over to the waiter
func TestWaitersThatGiveUpLeaveNoLockTakenForALease(t *testing.T) {
	t.Parallel()
	for kind, of := range queueing {
		if kind != "Reentrant" && kind != "Fenced" && !redistest.Long() {
			continue // releases of other kinds name no waiter of their process
		}
		t.Run(kind, func(t *testing.T) {
			s := redistest.Start(t)
			ctx, cancel := context.WithTimeout(context.Background(),
				redistest.Sized(500*time.Millisecond, 500*time.Millisecond, 5*time.Second))
			defer cancel()
			names := []string{"a", "b", "c", "d"}
			var acquired, gaveUp atomic.Int64
			var wg sync.WaitGroup
			rigs := make([]*rig, 3)
			for n := range rigs {
				rigs[n] = newRig(t, s, usual)
				for i := range 4 * len(names) {
					l := of(rigs[n].locks, names[i%len(names)])
					wg.Go(func() {
						for ctx.Err() == nil {
							l := l
							if i >= len(names) {
								l = l.WithWait(rand.N(5 * time.Millisecond))
							}
							h, err := l.Lock(ctx)
							if err != nil {
								gaveUp.Add(1)
								continue
							}
							acquired.Add(1)
							time.Sleep(rand.N(time.Millisecond))
							h.Unlock(context.Background())
						}
					})
				}
			}
			wg.Wait()
			for _, r := range rigs {
				redistest.Eventually(t, 10*time.Second, "nothing waits for its release", func() bool {
					return r.locks.Stats().PendingReleases == 0
				})
			}
			for _, name := range names {
				require.Equal(t, "0", s.Ask(t, "EXISTS", name),
					"nobody has %s, and it is taken, after %d acquisitions and %d calls that gave up", name, acquired.Load(),
					gaveUp.Load())
			}
		})
	}
}

// 64 callers want a Fair lock, and none has the time to wait for all before it. What those leave behind that give up
// does not pile up in the line, nor is the lock handed from one that has left to the next.
func TestAFairLockIsHadByCallersWithLessPatienceThanItsLineIsLong(t *testing.T) {
	t.Parallel()
	for way := range redistest.GiveUp {
		t.Run(way, func(t *testing.T) {
			s := redistest.Start(t)
			var processes []redistest.Take
			for range 4 {
				processes = append(processes, taking(newRig(t, s, usual).locks.Fair("x")))
			}
			longest := 0
			gaveUp := redistest.Hurry(t, way, redistest.Sized(10, 10, 300), func() {
				n, err := strconv.Atoi(s.Ask(t, "LLEN", "redisson_lock_queue:{x}"))
				require.NoError(t, err)
				longest = max(longest, n)
			}, processes...)
			t.Logf("%d in line", longest)
			require.Less(t, int64(longest), 200+gaveUp/2,
				"64 callers, and what some have left behind that was not answered: less than would pile up")
		})
	}
}
