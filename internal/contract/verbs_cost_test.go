package contract_test

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"

	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// cycle is a use of an object that nobody else wants, and what it may cost, in counts: times say more about the machine
// than about the code. A budget that has to be raised is a change to be argued for. The context of a call is one
// allocation, and six on a connection that is pipelining (see LazyDeadline of internal/script).
type cycle struct {
	name     string
	calls    int // that the client makes
	commands int // of the scripts, or of the client
	allocs   float64
	once     func(ctx context.Context) error
}

// cycles are the uses that are counted. beside have permits of the semaphores out, as many as a name says.
func cycles(t *testing.T, red *redlatch.Client) (all []cycle) {
	locks, c := red.Locks(), red.Semaphores()
	lock := func(l *rlock.Lock) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			h, err := l.Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			return err
		}
	}
	all = []cycle{
		{"Reentrant", 2, 7, 12, lock(locks.Reentrant("reentrant"))},
		{"NonReentrant", 2, 7, 12, lock(locks.NonReentrant("nonreentrant"))},
		{"Plain", 2, 6, 13, lock(locks.Plain("plain"))},
		{"Read", 2, 13, 0, lock(locks.ReadWrite("read").Read())},
		{"Write", 2, 9, 0, lock(locks.ReadWrite("write").Write())},
	}
	const free, beside, notes = 13, 17, 5 // notes: of one that was resized, or has a revision or a label
	permits := func(name string, commands int, allocs float64, out int, of func() *rsemaphore.Semaphore) {
		for range out {
			require.NoError(t, err1(of().TryAcquire(t.Context(), 1, 0, time.Hour)))
		}
		all = append(all, cycle{name, 2, commands, allocs, func(ctx context.Context) error {
			p, err := of().Acquire(ctx, 1)
			if err == nil {
				err = p.Release(ctx)
			}
			return err
		}})
	}
	always := func(s *rsemaphore.Semaphore) func() *rsemaphore.Semaphore {
		return func() *rsemaphore.Semaphore { return s }
	}
	for _, name := range []string{"resized", "resized twice"} {
		require.NoError(t, err1(c.Semaphore(name, 9).Resize(t.Context(), 10)))
	}
	permits("a permit", free, 16, 0, always(c.Semaphore("s", 10)))
	permits("a permit of a semaphore described anew", free, 26, 0, func() *rsemaphore.Semaphore {
		return c.Semaphore("anew", 10)
	})
	permits("beside others", beside, 0, 3, always(c.Semaphore("beside", 10)))
	permits("resized", free+notes, 0, 0, always(c.Semaphore("resized", 9)))
	permits("resized, beside others", beside+notes, 0, 3, always(c.Semaphore("resized twice", 9)))
	permits("with a revision", free+notes, 0, 0, always(c.Semaphore("revised", 10).WithRevision(2)))
	require.NoError(t, err1(c.Semaphore("older", 10).WithRevision(2).TryAcquire(t.Context(), 1, 0, time.Hour)))
	permits("of an older revision", beside+notes, 0, 3, always(c.Semaphore("older", 9).WithRevision(1)))
	permits("with a label", free+notes, 0, 0, always(c.Semaphore("labelled", 10).WithLabel("mine")))
	permits("with a label, beside others", beside+notes, 0, 3, always(c.Semaphore("labels", 10).WithLabel("mine")))
	permits("all of these, and Shared", beside+notes, 0, 3,
		always(c.Semaphore("all", 10).WithRevision(2).WithLabel("mine").Shared()))
	incr := red.Counters().Counter("k", rcounter.CounterOptions{})
	return append(all, cycle{"Counter.Incr", 0, 1, 3, func(ctx context.Context) error { return err1(incr.Incr(ctx)) }})
}

func TestCost_Cycle_KeepsToItsCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	// No key may be tracked. Otherwise a hold that a busy machine keeps for 50 ms costs a call of its own.
	rig.Must(t, admin, "ACL", "SETUSER", "default", "-client|tracking")
	option := server.Option()
	option.DisableCache = true
	red := redistest.NoError(redlatch.Open(t.Context(), option, redlatch.Options{CallTimeout: 20 * time.Second}))(t)
	t.Cleanup(func() { red.Close(context.Background()) })
	const rounds = 40
	var budget, calls, commands int
	for _, c := range cycles(t, red) {
		require.NoError(t, c.once(t.Context())) // sends the scripts' texts
		before := redistest.CommandCalls(t, admin)
		for range rounds {
			require.NoError(t, c.once(t.Context()), c.name)
		}
		after := redistest.CommandCalls(t, admin)
		calls, commands, budget = 0, 0, c.commands*rounds+rounds/2 // a lease that is over, a renewal, and what is asked once
		for name, n := range after {
			switch d := n - before[name]; name {
			case "evalsha", "eval":
				calls += d
			case "info", "hello", "ping", "quit", "config|get", "client|tracking", "client|setinfo", "cluster|slots":
				// connections are made beside
			default:
				commands += d
			}
		}
		t.Logf("%s: %.2f commands in %.2f calls", c.name, float64(commands)/rounds, float64(calls)/rounds)
		// A hold that a busy machine keeps for long is renewed, which is a call more.
		require.InDelta(t, c.calls*rounds, calls, rounds/8, c.name)
		require.GreaterOrEqual(t, calls, c.calls*rounds, c.name)
		require.LessOrEqual(t, commands, budget, "%s: %v", c.name, after)
		require.Zero(t, after["subscribe"], c.name)
	}
}

// leastOf is the least of some measurements: what runs beside, as the runtime and a watchdog do, only adds.
func leastOf(measure func() float64) float64 {
	least := measure()
	for range 4 {
		least = min(least, measure())
	}
	return least
}

// skipUnderRace: the race detector allocates by itself, and has sync.Pool drop what it is given at random.
func skipUnderRace(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("allocations are counted without the race detector; go test ./... does")
	}
}

// A connection pipelines from the first moment at which two calls met on it, and then each call allocates more. On a
// busy machine a call of the client's own may meet the measured calls. So a cycle that exceeds its budget is measured
// with another client.
func TestCost_Cycle_KeepsToItsAllocations(t *testing.T) {
	skipUnderRace(t)
	const clients = 5
	within := map[string]bool{}
	for i := range clients {
		for _, c := range cycles(t, open(t, redistest.Start(t), patient)) {
			if c.allocs == 0 || within[c.name] {
				continue
			}
			once := func() {
				if err := c.once(context.Background()); err != nil {
					t.Error(err)
				}
			}
			for range 100 { // the pools, the connection, the server's clock
				once()
			}
			got := leastOf(func() float64 { return testing.AllocsPerRun(200, once) })
			t.Logf("%s: %v allocations", c.name, got)
			within[c.name] = got <= c.allocs
			require.True(t, within[c.name] || i < clients-1, "%s: %v allocations of %v", c.name, got, c.allocs)
		}
	}
}

// With 8 goroutines each call goes by itself, over one connection; with 64 they share calls, and the allocations of
// each call are divided by some 16 that share it.
func TestCost_ManyGoroutines_KeepToTheirAllocations(t *testing.T) {
	skipUnderRace(t)
	for goroutines, budget := range map[int]float64{8: 26, 64: 17} {
		locks, cycles := open(t, redistest.Start(t), patient).Locks(), 40
		round := func() float64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var wg sync.WaitGroup
			for i := range goroutines {
				wg.Go(func() {
					l := locks.Reentrant("l" + string(rune('0'+i)))
					for range cycles {
						h, err := l.Lock(context.Background())
						if err == nil {
							err = h.Unlock(context.Background())
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			runtime.ReadMemStats(&after)
			return float64(after.Mallocs-before.Mallocs) / float64(goroutines*cycles)
		}
		round()
		got := leastOf(round)
		t.Logf("%d goroutines: %.1f allocations a cycle", goroutines, got)
		require.LessOrEqual(t, got, budget, "%d goroutines", goroutines)
	}
}

// roundTrips are those of the verbs that do not make one call: of several calls, or of one that finds out what to ask.
var roundTrips = map[string]int{
	"Lock.TryLock": 2, "Lock.DoOnce": 4, "Once.Do": 2, "Once.Inspect": 2,
	"Semaphore.TryAcquire": 2, "Limiter.Reserve": 2, // and back
	"Hold.UnlockAfter": 2, "Leadership.Resign": 2, // confirmed
	"Semaphore.Inspect": 2, "Shards.Drain": 2, "Packet.Ledger": 2, "Packet.Send": 2, "Packet.Shares": 3,
	"Sale.Change": 2, "Sale.Delete": 2, "Sale.EndSale": 2, "Sale.Holders": 3, "Sale.Ledger": 3,
}

func TestCost_EveryVerb_IsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server, notes := redistest.Embedded(t), &spans{}
	trips := func(prefix string) map[string]int {
		client := func(prefix string) *redlatch.Client {
			return spanned(t, server, notes, func(context.Context, string, string) {}, prefix, time.Hour)
		}
		calls, made := unwaiting(t, client(prefix),
			open(t, server, redlatch.Options{CallTimeout: time.Minute, KeyPrefix: prefix})), map[string]int{}
		maps.Copy(calls, releases(t, client(prefix+"back:")))
		calls["Sale.Status"](t.Context()) // the first asks for the server's time
		// They go on, ask in parts, or ask only where nothing tells of a change.
		for _, verb := range []string{"Election.Observe", "Shards.Observe", "Sale.Restore", "Counter.Cached"} {
			delete(calls, verb)
		}
		for _, verb := range slices.Sorted(maps.Keys(calls)) {
			notes.take()
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), spanKey{}, verb), 5*time.Second)
			calls[verb](ctx)
			cancel()
			for _, c := range notes.take() {
				if c.span == verb && c.command != "INFO" {
					made[verb]++
				}
			}
		}
		return made
	}
	trips("texts of scripts:")
	for verb, n := range trips("") {
		kind, _, _ := strings.Cut(verb, " ")
		require.Equal(t, max(1, roundTrips[kind]), n, verb)
	}

}
