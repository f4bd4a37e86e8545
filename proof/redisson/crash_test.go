package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/redisson"
	"github.com/redlatch/redlatch/rlock"
)

func init() { roles["holder"] = beHolder }

// brief is the lease of those that die.
const brief = 2 * time.Second

// mortal are the kinds that a process holds when it is killed, and what the other side then waits for.
var mortal = []struct{ holds, waits string }{
	{"lock", "lock"}, {"fenced", "fenced"}, {"spin", "spin"}, {"fair", "fair"}, {"write", "write"}, {"write", "read"},
	{"read", "write"},
}

var crashes = []place{newestAlone, newestCluster, olderAlone}

func TestKilledHolder_OtherLanguage_WaitsForItsLease(t *testing.T) {
	each(t, crashes, func(t *testing.T, w *world) {
		for _, javaDies := range []bool{true, false} {
			t.Run(fmt.Sprint("java dies ", javaDies), func(t *testing.T) {
				t.Parallel()
				w.holderDies(t, javaDies)
			})
		}
	})
}

func (w *world) holderDies(t *testing.T, javaDies bool) {
	r, kinds := w.rig(t), mortal
	if !javaDies && w.release == interop.Older {
		// There a fair waiter counts the end of the lease by its own clock and wakes a moment too early; the answer, a
		// time that has passed, it takes for one without end. So it does behind a dead holder of its own kind.
		kinds = slices.DeleteFunc(slices.Clone(mortal), func(k struct{ holds, waits string }) bool {
			return k.holds == "fair"
		})
	}
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = unique(t, "crash")
	}
	// Made by Java. Of a semaphore that was made here and is not Shared nothing would be left when the lease is over: to
	// Redisson one that was never set up, for which it waits without end.
	slots := unique(t, "crash")
	w.lane(t).do(t, "permit.set", slots, 1)
	var kill func()
	if javaDies {
		jvm := redistest.NoError(interop.Start(driver(t), w.release, "-XX:TieredStopAtLevel=1"))(t)
		defer jvm.Kill()
		w.open(t, jvm, "mortal", brief)
		java := &lane{jvm, "lane", "mortal"}
		for i, k := range kinds {
			java.do(t, "lock", k.holds, names[i], -1)
		}
		java.do(t, "permit.acquire", slots, brief.Milliseconds())
		kill = jvm.Kill
	} else {
		args := []string{brief.String()}
		for i, k := range kinds {
			args = append(args, k.holds, names[i])
		}
		holder := redistest.Spawn(t, "holder", w.server, append(args, "permit", slots)...)
		require.Equal(t, "held", holder.Line(t))
		kill = func() { holder.Signal(t, syscall.SIGKILL); holder.Cmd.Wait() }
	}
	waiters, answers := make([]*player, len(kinds)), make([]<-chan answer, len(kinds))
	for i, k := range kinds {
		waiters[i] = w.player(t, !javaDies, r)
		answers[i] = waiters[i].asks(t, k.waits, names[i], 0)
	}
	kill()
	killed := time.Now()
	left := make([]time.Duration, len(kinds))
	for i, name := range names {
		left[i] = r.pttl(t, name)
		require.LessOrEqual(t, left[i], brief)
	}
	if javaDies {
		p := redistest.NoError(r.sems.Semaphore(slots, 1).Acquire(within(t), 1))(t)
		require.NoError(t, p.Release(within(t)))
	} else {
		w.lane(t).do(t, "permit.acquire", slots, 10_000)
	}
	for i, k := range kinds {
		after := has(t, answers[i]).Sub(killed)
		if left[i] > 0 { // else it ran out before the question
			require.Greater(t, after, left[i]-50*time.Millisecond, "%v: not before the lease is over", k)
		}
		require.Less(t, after, brief+soon, "%v", k)
		waiters[i].unlock(t, k.waits, names[i])
	}
}

// beHolder holds what it is told to, renews it, and never lets go.
func beHolder() error {
	return redistest.Try(func() {
		watchdog := redistest.Got(time.ParseDuration(os.Args[2]))
		r, _, err := connect(rueidis.ClientOption{InitAddress: os.Args[1:2]}, pollCap, watchdog)
		redistest.Must(err)
		var kept []any
		for what := os.Args[3:]; len(what) > 1; what = what[2:] {
			if what[0] == "permit" {
				kept = append(kept, redistest.Got(r.sems.Semaphore(what[1], 1).Acquire(context.Background(), 1)))
			} else {
				kept = append(kept, redistest.Got(r.lock(what[0], what[1]).Lock(context.Background())))
			}
		}
		fmt.Println("held")
		bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Fprint(os.Stderr, len(kept), " were never killed\n")
	})
}

// TestFair_JavaWaiterDies_CostsItsOwnPatience: the lock's lease when it came, and the time that it wanted to
// wait.
func TestFair_JavaWaiterDies_CostsItsOwnPatience(t *testing.T) {
	each(t, []place{newestAlone, olderAlone}, func(t *testing.T, w *world) {
		t.Parallel()
		r := w.rig(t)
		mortalJVM := redistest.NoError(interop.Start(driver(t), w.release, "-XX:TieredStopAtLevel=1"))(t)
		defer mortalJVM.Kill()
		w.open(t, mortalJVM, "mortal", brief)
		name := unique(t, "fair")
		first := hold(t, r.locks.Fair(name).WithLease(brief), within(t))
		(&lane{mortalJVM, "lane", "mortal"}).send("try", "fair", name, 1000, -1)
		r.inLine(t, name, 1)
		waiter := waiting(t, r.locks.Fair(name))
		r.inLine(t, name, 2)
		mortalJVM.Kill()
		began := time.Now()
		first.Unlock(context.Background()) // or it has run out
		g := <-waiter
		require.NoError(t, g.err)
		require.Less(t, g.at.Sub(began), brief+time.Second+soon)
		t.Log("after", g.at.Sub(began))
		release(t, g.hold)
		free(t, r.locks.Fair(name))
	})
}

// TestWatchdogs_OfBothSides_RenewOnlyTheirOwnHolds: what is renewed lasts, what has a lease of its own ends with it,
// also where the other side's watchdog still believes that it holds that name.
func TestWatchdogs_OfBothSides_RenewOnlyTheirOwnHolds(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		t.Parallel()
		const watchdog = time.Second
		r, java := w.rigOf(t, pollCap, watchdog), w.other(t, watchdog)
		keeps := []string{"lock", "fair", "write", "read"}
		javas, ours := make([]string, len(keeps)), make([]*rlock.Hold, len(keeps))
		for i, kind := range keeps {
			javas[i] = unique(t, "kept")
			java.do(t, "lock", kind, javas[i], -1)
			ours[i] = hold(t, r.lock(kind, unique(t, "kept")), within(t))
		}
		var ending []string
		for _, kind := range keeps {
			// a lease of its own, beside the renewed ones
			name := unique(t, "ends")
			java.do(t, "lock", kind, name, watchdog.Milliseconds())
			ending = append(ending, name)
			name = unique(t, "ends")
			hold(t, r.lock(kind, name).WithLease(watchdog), within(t))
			ending = append(ending, name)

			// a renewed hold that is taken away, and its name held by the other side for a time
			name = unique(t, "taken")
			java.do(t, "lock", kind, name, -1)
			ok := redistest.NoError(r.lock(kind, name).ForceUnlock(within(t)))(t)
			require.True(t, ok)
			hold(t, r.lock(kind, name).WithLease(watchdog), within(t))
			ending = append(ending, name)
			name = unique(t, "taken")
			h := hold(t, r.lock(kind, name), within(t))
			another := w.lane(t)
			require.Equal(t, "true", another.do(t, "force", kind, name))
			another.do(t, "lock", kind, name, watchdog.Milliseconds())
			ending = append(ending, name)
			<-h.Done()
		}
		began := time.Now()
		for _, name := range ending {
			for r.exists(t, name) {
				require.Less(t, time.Since(began), 10*watchdog, "%s is renewed by somebody who does not hold it", name)
				time.Sleep(20 * time.Millisecond)
			}
		}
		for time.Since(began) < 3*watchdog {
			for i, kind := range keeps {
				require.True(t, r.exists(t, javas[i]), "java's %s is renewed", kind)
				require.NoError(t, ours[i].Err(), "our %s is renewed", kind)
			}
			time.Sleep(20 * time.Millisecond)
		}
		for i, kind := range keeps {
			java.do(t, "unlock", kind, javas[i])
			release(t, ours[i])
		}
	})
}
