package rsemaphore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// What a cycle of Acquire and Release of one permit may cost where nobody waits, in counts: times say more about the
// machine than about the code. A budget that has to be raised is a change to be argued for.
const (
	allocsAlone     = 22 // by one goroutine
	allocsAnew      = 32 // the same, with the semaphore described anew each time
	commandsFree    = 13 // within the scripts, where no other permit is out
	commandsBeside  = 17 // where others are
	commandsOfNotes = 5  // more, where it was resized, or has a revision or a label
)

func cycle(t testing.TB, s *rsemaphore.Semaphore) {
	p, err := s.Acquire(context.Background(), 1)
	if err == nil {
		err = p.Release(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestBudgetOfAllocationsOfAPermit(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("the race detector allocates by itself, and has sync.Pool drop what it is given at random")
	}
	r := newRig(t, redistest.Start(t), rsemaphore.Options{})
	s := r.c.Semaphore("s", 10)
	for range 100 { // the pools, the connection, the server's clock
		cycle(t, s)
	}
	for budget, f := range map[int]func(){
		allocsAlone: func() { cycle(t, s) },
		allocsAnew:  func() { cycle(t, r.c.Semaphore("s", 10)) },
	} {
		least := 1e9 // what runs beside, as the runtime and a watchdog do, only adds
		for range 5 {
			least = min(least, testing.AllocsPerRun(100, f))
		}
		t.Logf("%v allocations a cycle, of %d", least, budget)
		require.LessOrEqual(t, least, float64(budget))
	}
}

func TestBudgetOfCommandsOfAPermit(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rsemaphore.Options{})
	resized := r.c.Semaphore("resized", 9)
	_, err := resized.Resize(within(t), 10)
	require.NoError(t, err)
	plain := r.c.Semaphore("s", 10)
	for name, c := range map[string]struct {
		s      *rsemaphore.Semaphore
		beside int // permits that are out
		budget int
	}{
		"alone":                       {plain, 0, commandsFree},
		"beside others":               {plain, 3, commandsBeside},
		"resized":                     {resized, 0, commandsFree + commandsOfNotes},
		"resized, beside others":      {resized, 3, commandsBeside + commandsOfNotes},
		"with a revision":             {r.c.Semaphore("revised", 10).WithRevision(2), 0, commandsFree + commandsOfNotes},
		"of an older revision":        {r.c.Semaphore("revised", 9).WithRevision(1), 3, commandsBeside + commandsOfNotes},
		"with a label":                {r.c.Semaphore("labelled", 10).WithLabel("mine"), 0, commandsFree + commandsOfNotes},
		"with a label, beside others": {r.c.Semaphore("labelled", 10).WithLabel("mine"), 3, commandsBeside + commandsOfNotes},
		"all of these, and is Shared": {r.c.Semaphore("all", 10).WithRevision(2).WithLabel("mine").Shared(), 3,
			commandsBeside + commandsOfNotes},
	} {
		s := c.s
		var others []*rsemaphore.Permit
		for range c.beside {
			others = append(others, take(t, s, 1))
		}
		cycle(t, s) // sends the scripts' texts
		const cycles = 100
		before := redistest.CommandCalls(t, r.redis)
		for range cycles {
			cycle(t, s)
		}
		after := redistest.CommandCalls(t, r.redis)
		calls, all := 0, 0
		for command, n := range after {
			switch d := int(n - before[command]); command {
			case "evalsha", "eval":
				calls += d
			case "info", "hello", "ping", "quit", "config|get", "client|tracking", "client|setinfo", "cluster|slots":
				// connections are made beside
			default:
				all += d
			}
		}
		t.Logf("%s: %.2f commands a cycle in %.2f calls", name, float64(all)/cycles, float64(calls)/cycles)
		require.Equal(t, 2*cycles, calls, name)
		// The first cycle of a semaphore, and a few where a lease is over, look at more; so does a renewal.
		require.LessOrEqual(t, all, c.budget*cycles+50, "%s: %v", name, after)
		for _, p := range others {
			require.NoError(t, p.Release(context.Background()))
		}
	}
}
