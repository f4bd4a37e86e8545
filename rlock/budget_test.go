package rlock_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// What a cycle of lock and unlock may cost where nobody contends, in counts: times say more about the machine than
// about the code. A budget that has to be raised is a change to be argued for. Each call has a context of package
// context with a deadline, since hooks around the client see it: four allocations, and one more where calls go over one
// connection, for its channel.
const (
	allocsAlone      = 18 // by one goroutine
	allocsPipelining = 22 // by many, whose calls go over one connection
	allocsSharing    = 17 // by so many that they share calls: those of each call, too, divided by some 16 that share it
)

// skipUnderRace: the race detector allocates by itself, and has sync.Pool drop what it is given at random.
func skipUnderRace(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("allocations are counted without the race detector; go test ./... does")
	}
}

func cycle(t testing.TB, l *rlock.Lock) {
	h, err := l.Lock(context.Background())
	if err == nil {
		err = h.Unlock(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestBudgetOfAllocationsAlone(t *testing.T) {
	skipUnderRace(t)
	r := newRig(t, redistest.Start(t), rlock.Options{})
	for l, budget := range map[*rlock.Lock]int{r.locks.Reentrant("alone"): allocsAlone,
		r.locks.Plain("plain"): allocsAlone + 1} {
		for range 100 { // the pools, the connection, the server's clock
			cycle(t, l)
		}
		got := leastOf(5, func() float64 { return testing.AllocsPerRun(500, func() { cycle(t, l) }) })
		t.Logf("%s: %v allocations a cycle", l.Name(), got)
		require.LessOrEqual(t, got, float64(budget), l.Name())
	}
}

// With 8 goroutines each call goes by itself, over one connection; with 64 they share calls.
func TestBudgetOfAllocationsWhilePipelining(t *testing.T) {
	skipUnderRace(t)
	for goroutines, budget := range map[int]int{8: allocsPipelining, 64: allocsSharing} {
		got := pipelined(t, goroutines)
		t.Logf("%d goroutines: %.1f allocations a cycle", goroutines, got)
		require.LessOrEqual(t, got, float64(budget), "%d goroutines", goroutines)
	}
}

// pipelined returns the allocations of a cycle of so many goroutines with a lock each.
func pipelined(t *testing.T, goroutines int) float64 {
	r := newRig(t, redistest.Start(t), rlock.Options{})
	const cycles = 40
	locks := make([]*rlock.Lock, goroutines)
	for i := range locks {
		locks[i] = r.locks.Reentrant("pipelining" + strconv.Itoa(i))
	}
	round := func() float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var wg sync.WaitGroup
		for _, l := range locks {
			wg.Go(func() {
				for range cycles {
					cycle(t, l)
				}
			})
		}
		wg.Wait()
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(goroutines*cycles)
	}
	round()
	return leastOf(5, round)
}

// leastOf is the least of n measurements: what runs beside, as the runtime and a watchdog do, only adds.
func leastOf(n int, f func() float64) float64 {
	least := f()
	for range n - 1 {
		least = min(least, f())
	}
	return least
}

// TestBudgetOfCommands counts what the server runs for a cycle.
func TestBudgetOfCommands(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newUntracked(t, s)
	for _, c := range []struct {
		lock   *rlock.Lock
		within int // scripts' own commands
	}{{r.locks.Reentrant("reentrant"), 7}, {r.locks.NonReentrant("nonreentrant"), 7}, {r.locks.Plain("plain"), 6}} {
		cycle(t, c.lock) // sends the scripts' texts
		const cycles = 100
		before := redistest.CommandCalls(t, r.redis)
		for range cycles {
			cycle(t, c.lock)
		}
		after := redistest.CommandCalls(t, r.redis)
		calls, all := 0, 0
		for name, n := range after {
			switch d := int(n - before[name]); name {
			case "evalsha", "eval":
				calls += d
			case "info", "hello", "ping", "quit", "client|tracking", "client|setinfo", "cluster|slots":
				// connections are made meanwhile
			default:
				all += d
			}
		}
		require.Equal(t, 2*cycles, calls, c.lock.Name())
		// What the client asks once, such as who leads the server, may fall into these cycles.
		require.Less(t, all, c.within*cycles+cycles/2, "%s: %v", c.lock.Name(), after)
	}
}
