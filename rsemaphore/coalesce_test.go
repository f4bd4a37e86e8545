package rsemaphore_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// TestSharedScriptTable: what free.lua does for one permit, next to one of a semaphore that has some free, for which it
// must do the same in any case.
func TestSharedScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{})
		other := []string{"o", "{o}:timeout", "{o}:notes", "{o}:latch", "redlatch_queue:{o}"}
		lease := strconv.Itoa(4 * unit)
		const give, channel = "", "redisson_sc:{s}"
		kept := func(capacity, revised string) map[string]string {
			notes := map[string]string{"keep": keptUnits, "capacity": capacity}
			if revised != "" {
				notes["revised"] = revised
			}
			return notes
		}
		for _, c := range []struct {
			name     string
			before   sem
			beside   []string // a command
			base     string
			lease    string
			last     string
			capacity string
			done     bool
			after    sem
			told     []string
		}{
			{name: "free", before: sem{count: "5", ttl: 6}, base: baseA, lease: lease, last: "0", capacity: "5",
				done: true, after: sem{count: "4", ttl: 6, out: map[string]int{idA: 4}, outTTL: 6}},
			{name: "free, for longer than all before", before: sem{count: "4", ttl: 2, out: map[string]int{idB: 2}, outTTL: 2},
				base: baseA, lease: lease, last: "0", capacity: "5",
				done: true, after: sem{count: "3", ttl: 4, out: map[string]int{idA: 4, idB: 2}, outTTL: 4}},
			{name: "keys without an end", before: sem{count: "4", out: map[string]int{idB: 2}}, base: baseA, lease: lease,
				last: "0", capacity: "5",
				done: true, after: sem{count: "3", out: map[string]int{idA: 4, idB: 2}}},
			{name: "shared with Redisson", before: sem{count: "7"}, base: baseA, lease: lease, last: "0", capacity: "*5",
				done: true, after: sem{count: "6", out: map[string]int{idA: 4}}},
			{name: "shared with Redisson, keys with an end", before: sem{count: "7", ttl: 6}, base: baseA, lease: lease,
				last: "0", capacity: "*5",
				after: sem{count: "7", ttl: 6}},
			{name: "one key without an end", before: sem{count: "4", ttl: 6, out: map[string]int{idB: 2}}, base: baseA,
				lease: lease, last: "0", capacity: "5",
				after: sem{count: "4", ttl: 6, out: map[string]int{idB: 2}}},
			{name: "not in use", base: baseA, lease: lease, last: "0", capacity: "5"},
			{name: "none free", before: sem{count: "0", ttl: 6, out: map[string]int{idB: 2}, outTTL: 6}, base: baseA,
				lease: lease, last: "0", capacity: "1",
				after: sem{count: "0", ttl: 6, out: map[string]int{idB: 2}, outTTL: 6}},
			{name: "another capacity", before: sem{count: "5", ttl: 6}, base: baseA, lease: lease, last: "0", capacity: "6",
				after: sem{count: "5", ttl: 6}},
			{name: "a lease is over", before: sem{count: "4", ttl: 6, out: map[string]int{idB: -1}, outTTL: 6}, base: baseA,
				lease: lease, last: "0", capacity: "5",
				after: sem{count: "4", ttl: 6, out: map[string]int{idB: -1}, outTTL: 6}},
			{name: "resized", before: sem{count: "5", ttl: 600, notes: kept("5", ""), noteTTL: 600}, base: baseA, lease: lease,
				last: "0", capacity: "7",
				done: true, after: sem{count: "4", ttl: 600, out: map[string]int{idA: 4}, outTTL: 600, notes: kept("5", ""),
					noteTTL: 600}},
			{name: "resized, and its keys are to be prolonged",
				before: sem{count: "5", ttl: 598, notes: kept("5", ""), noteTTL: 598}, base: baseA, lease: lease, last: "0",
				capacity: "7",
				after:    sem{count: "5", ttl: 598, notes: kept("5", ""), noteTTL: 598}},
			{name: "resized, and some of it was deleted", before: sem{count: "4", ttl: 600, notes: kept("5", ""), noteTTL: 600},
				base: baseA, lease: lease, last: "0", capacity: "7",
				after: sem{count: "4", ttl: 600, notes: kept("5", ""), noteTTL: 600}},
			{name: "resized to what is no number", before: sem{count: "5", ttl: 600, notes: kept("x", ""), noteTTL: 600},
				base: baseA, lease: lease, last: "0", capacity: "5",
				after: sem{count: "5", ttl: 600, notes: kept("x", ""), noteTTL: 600}},
			{name: "its revision", before: sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}, base: baseA,
				lease: lease, last: "0", capacity: "5:3",
				done: true, after: sem{count: "4", ttl: 600, out: map[string]int{idA: 4}, outTTL: 600, notes: kept("5", "3 5"),
					noteTTL: 600}},
			{name: "an older revision", before: sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}, base: baseA,
				lease: lease, last: "0", capacity: "9:2",
				done: true, after: sem{count: "4", ttl: 600, out: map[string]int{idA: 4}, outTTL: 600, notes: kept("5", "3 5"),
					noteTTL: 600}},
			{name: "a newer revision", before: sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}, base: baseA,
				lease: lease, last: "0", capacity: "9:12",
				after: sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}},
			{name: "the same revision of another capacity",
				before: sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}, base: baseA, lease: lease, last: "0",
				capacity: "9:3",
				after:    sem{count: "5", ttl: 600, notes: kept("5", "3 5"), noteTTL: 600}},
			{name: "the first revision", before: sem{count: "5", ttl: 6}, base: baseA, lease: lease, last: "0",
				capacity: "*5:3", after: sem{count: "5", ttl: 6}},
			{name: "a label", before: sem{count: "5", ttl: 6}, base: baseA + "mine", lease: lease, last: "0", capacity: "5",
				done: true, after: sem{count: "4", ttl: 6, out: map[string]int{idA: 4}, outTTL: 6,
					notes: map[string]string{idA: "mine"}, noteTTL: 4}},
			{name: "a label beside another that ends sooner",
				before: sem{count: "4", ttl: 6, out: map[string]int{idB: 2}, outTTL: 6, notes: map[string]string{idB: "theirs"},
					noteTTL: 2}, base: baseA + "mine", lease: lease, last: "0", capacity: "5",
				done: true, after: sem{count: "3", ttl: 6, out: map[string]int{idA: 4, idB: 2}, outTTL: 6,
					notes: map[string]string{idA: "mine", idB: "theirs"}, noteTTL: 4}},
			{name: "released with its label",
				before: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6, notes: map[string]string{idA: "mine"},
					noteTTL: 2}, base: baseA, lease: give, last: channel,
				done: true, after: sem{count: "5", ttl: 6}, told: []string{"5"}},
			{name: "released, resized",
				before: sem{count: "4", ttl: 600, out: map[string]int{idA: 2}, outTTL: 600, notes: kept("5", ""), noteTTL: 600},
				base:   baseA, lease: give, last: channel,
				done: true, after: sem{count: "5", ttl: 600, notes: kept("5", ""), noteTTL: 600}, told: []string{"5"}},
			{name: "a latch", before: sem{count: "5", ttl: 6}, beside: []string{"HSET", "{s}:latch", "gen", "1"}, base: baseA,
				lease: lease, last: "0", capacity: "5",
				after: sem{count: "5", ttl: 6}},
			{name: "others queue", before: sem{count: "5", ttl: 6}, beside: []string{"ZADD", "redlatch_queue:{s}", "5", "x"},
				base: baseA, lease: lease, last: "0", capacity: "5",
				after: sem{count: "5", ttl: 6}},
			{name: "too late", before: sem{count: "5", ttl: 6}, base: baseA, lease: lease, last: "1", capacity: "5",
				after: sem{count: "5", ttl: 6}},
			{name: "out already", before: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}, base: baseA,
				lease: lease, last: "0", capacity: "5",
				after: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}},
			{name: "no number", before: sem{count: "x", ttl: 6}, base: baseA, lease: lease, last: "0", capacity: "5",
				after: sem{count: "x", ttl: 6}},

			{name: "released, the last", before: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}, base: baseA,
				lease: give, last: channel,
				done: true, after: sem{count: "5", ttl: 6}, told: []string{"5"}},
			{name: "released", before: sem{count: "3", ttl: 6, out: map[string]int{idA: 2, idB: 3}, outTTL: 6}, base: baseA,
				lease: give, last: channel,
				done: true, after: sem{count: "4", ttl: 6, out: map[string]int{idB: 3}, outTTL: 6}, told: []string{"4"}},
			{name: "another's is not released", before: sem{count: "4", ttl: 6, out: map[string]int{idB: 2}, outTTL: 6},
				base: baseA, lease: give, last: channel,
				after: sem{count: "4", ttl: 6, out: map[string]int{idB: 2}, outTTL: 6}},
			{name: "none is out", before: sem{count: "5", ttl: 6}, base: baseA, lease: give, last: channel,
				after: sem{count: "5", ttl: 6}},
			{name: "released, its lease is over", before: sem{count: "4", ttl: 6, out: map[string]int{idA: -1}, outTTL: 6},
				base: baseA, lease: give, last: channel,
				after: sem{count: "4", ttl: 6, out: map[string]int{idA: -1}, outTTL: 6}},
			{name: "released, others queue", before: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6},
				beside: []string{"ZADD", "redlatch_queue:{s}", "5", "x"}, base: baseA, lease: give, last: channel,
				after: sem{count: "4", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}},
			{name: "released, no count", before: sem{out: map[string]int{idA: 2}, outTTL: 6}, base: baseA, lease: give,
				last:  channel,
				after: sem{out: map[string]int{idA: 2}, outTTL: 6}},
			{name: "released, no number", before: sem{count: "x", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}, base: baseA,
				lease: give, last: channel,
				after: sem{count: "x", ttl: 6, out: map[string]int{idA: 2}, outTTL: 6}},
		} {
			t.Run(c.name, func(t *testing.T) {
				r.put(t, c.before)
				r.must(t, append([]string{"DEL"}, other...)...)
				r.must(t, "SET", "o", "9")
				if c.beside != nil {
					r.must(t, c.beside...)
				}
				args := []string{"PUBLISH", "0", baseA, lease, "0", "9", "1", c.base, c.lease, c.last, c.capacity, "0", baseB,
					lease, "0", "9"}
				for run := range 2 {
					want, told := []int64{-7, 0, 0, 0}, []string(nil)
					if run == 0 {
						want[1], want[3], told = 1, 1, c.told
						if c.done {
							want[2] = 1
						}
					}
					require.Equal(t, told, r.told(t, func() {
						m, err := r.script(t, "free", append(other[:5:5], semaphoreKeys...), args...)
						require.NoError(t, err)
						require.Equal(t, want, r.numbers(t, m), "run %d", run+1)
					}))
					require.Equal(t, c.after, r.get(t), "run %d", run+1)
					require.Equal(t, "7", r.text(t, "GET", "o"))
					require.EqualValues(t, 2, r.number(t, "ZCARD", "{o}:timeout"))
				}
			})
		}
	})
}

// A shared call for several permits of one semaphore gives what is there, in order, also what it was given back before.
func TestASharedCallForOneSemaphoreGivesWhatIsThere(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{})
		r.put(t, sem{count: "1", ttl: 6, out: map[string]int{idA: 4}, outTTL: 6})
		take := func(base string) []string { return []string{"0", base, strconv.Itoa(4 * unit), "0", "2"} }
		give := func(base string) []string { return []string{"0", base, "", "redisson_sc:{s}", "2"} }
		call := func(parts ...[]string) (out []int64) {
			args := []string{"PUBLISH"}
			for _, p := range parts {
				args = append(args, p...)
			}
			m, err := r.script(t, "free", semaphoreKeys, args...)
			require.NoError(t, err)
			return r.numbers(t, m)[1:]
		}
		require.Equal(t, []int64{1, 0, 1, 1, 0}, call(take(baseB), take(baseC), give(baseA), take(baseD), take(baseC)))
		require.Equal(t, sem{count: "0", ttl: 6, out: map[string]int{idB: 4, idD: 4}, outTTL: 6}, r.get(t))
		require.Equal(t, []int64{1, 1, 0}, call(give(baseB), give(baseD), give(baseD)))
		require.Equal(t, sem{count: "2", ttl: 6}, r.get(t))
		require.Equal(t, []int64{1, 1, 1, 1}, call(take(baseA), give(baseA), take(baseB), take(baseC)))
		require.Equal(t, sem{count: "0", ttl: 6, out: map[string]int{idB: 4, idC: 4}, outTTL: 6}, r.get(t),
			"the keys have an end though all was given back in between")
	})
}

// isShared tells a call that several share by its arguments: the script's first is a command, not a capacity or an
// owner.
func isShared(words []string) bool {
	if len(words) < 4 || words[0] != "EVALSHA" {
		return false
	}
	n, err := strconv.Atoi(words[2])
	return err == nil && n%5 == 0 && len(words) > 3+n && words[3+n] == "PUBLISH"
}

// many runs fn in n goroutines and waits for all.
func many(n int, fn func(g int)) {
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() { fn(g) })
	}
	wg.Wait()
}

func TestManyFreePermitsShareCalls(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	r, direct := newRig(t, far, patient), newRig(t, near, patient)
	const goroutines, cycles = 64, 5
	run := func(of func(g int) *rsemaphore.Semaphore, n, semaphores int) float64 {
		for g := range semaphores { // in use
			release(t, acquire(t, of(g), n))
		}
		before := scriptCalls(t, direct)
		many(goroutines, func(g int) {
			for range cycles {
				p, err := of(g).Acquire(context.Background(), n)
				if err == nil {
					err = p.Release(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		return float64(scriptCalls(t, direct)-before) / (goroutines * cycles)
	}
	for what, x := range map[string]struct {
		of         func(g int) *rsemaphore.Semaphore
		semaphores int
	}{
		"one": {func(int) *rsemaphore.Semaphore { return r.c.Semaphore("one", 100) }, 1},
		"each its own": {func(g int) *rsemaphore.Semaphore {
			return r.c.Semaphore("own"+strconv.Itoa(g), 1)
		}, goroutines},
		"one with Redisson": {func(int) *rsemaphore.Semaphore { return r.c.Semaphore("java", 100).Shared() }, 1},
	} {
		got := run(x.of, 1, x.semaphores)
		t.Logf("%s: %.2f calls a cycle", what, got)
		require.Less(t, got, 1.0, what) // two if none was shared
	}
	require.GreaterOrEqual(t, run(func(int) *rsemaphore.Semaphore {
		return r.c.Semaphore("two", 200)
	}, 2, 1), 2.0, "two permits are asked for alone")
	allBack(t, direct.c.Semaphore("one", 100), 100)
}

// allBack waits until all permits are there, and none is out: what gives back a late grant runs beside the callers.
func allBack(t *testing.T, sem *rsemaphore.Semaphore, capacity int) {
	t.Helper()
	redistest.Eventually(t, 60*time.Second, "all is released", func() bool {
		return counts(t, sem) == [3]int{capacity, 0, capacity}
	})
}

// Permits that many want, among those that nobody else wants: never more than there are are in use, all are served, and
// all are back in the end.
func TestSharedCallsAmongContendedPermitsNeverPassTheCapacity(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	direct := newRig(t, near, patient)
	const goroutines, cycles = 40, 10
	var ledgers []*ledger
	for _, capacity := range []int{1, 3, 20, 60} {
		ledgers = append(ledgers, &ledger{name: "hot" + strconv.Itoa(capacity), capacity: capacity})
	}
	var wg sync.WaitGroup
	for p := range 2 {
		r := newRig(t, far, patient)
		for g := range goroutines {
			wg.Go(func() {
				own := &ledger{name: "own" + strconv.Itoa(p) + "-" + strconv.Itoa(g), capacity: 1}
				for i := range cycles {
					l := own
					if i%2 == 0 {
						l = ledgers[rand.N(len(ledgers))]
					}
					p, err := r.c.Semaphore(l.name, l.capacity).Acquire(context.Background(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					from := time.Now()
					if i%5 == 0 {
						time.Sleep(time.Millisecond)
					}
					l.add(from, time.Now(), 1)
					if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, l := range ledgers {
		require.LessOrEqual(t, l.most(), l.capacity, l.name)
		allBack(t, direct.c.Semaphore(l.name, l.capacity), l.capacity)
	}
}

// Replies of shared calls are lost, and requests too. Every caller gets its permit in the end, no Release reports a
// loss, no permit is taken twice, and nothing stays taken.
func TestSharedCallsThatAreLost(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{"reply": redistest.LoseReply, "request": redistest.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far, p := redistest.Away(t)
			r, direct := newRig(t, far, patient), newRig(t, near, patient)
			l := &ledger{name: "s", capacity: 70}
			sem := r.c.Semaphore(l.name, l.capacity)
			release(t, acquire(t, sem, 1)) // it is in use, the server's time is known
			var seen, lost atomic.Int32
			p.Trap(&redistest.Trap{Every: true, Fate: fate, Match: func(words []string) bool {
				if !isShared(words) || seen.Add(1)%8 != 0 || lost.Load() >= 10 {
					return false
				}
				lost.Add(1)
				return true
			}})
			many(64, func(int) {
				for range 12 {
					p, err := sem.Acquire(within(t), 1)
					if err != nil {
						t.Error("acquire:", err)
						return
					}
					from := time.Now()
					l.add(from, time.Now(), 1)
					if err := p.Release(within(t)); err != nil {
						t.Error("release:", err)
					}
				}
			})
			require.Positive(t, lost.Load(), "shared calls were lost")
			require.LessOrEqual(t, l.most(), l.capacity)
			allBack(t, direct.c.Semaphore(l.name, l.capacity), l.capacity)
		})
	}
}

// Callers leave while their shared calls have not been sent, and while they are under way. What is granted to them
// afterwards is given back.
func TestASharedGrantWhoseCallerHasLeftIsGivenBack(t *testing.T) {
	t.Parallel()
	near, far, p := redistest.Away(t)
	r, direct := newRig(t, far, patient), newRig(t, near, patient)
	sem := r.c.Semaphore("s", 100)
	release(t, acquire(t, sem, 1))
	many(64, func(int) { release(t, acquire(t, sem, 1)) }) // connections, the script's text
	p.Delay(50*time.Millisecond, 50*time.Millisecond)
	var gaveUp atomic.Int32
	many(96, func(g int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if g%2 == 0 {
			time.AfterFunc(time.Duration(g)*2*time.Millisecond, cancel)
		}
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			gaveUp.Add(1)
			return
		}
		if err := p.Release(context.Background()); err != nil {
			t.Error("release:", err)
		}
	})
	t.Logf("%d gave up", gaveUp.Load())
	p.Heal()
	allBack(t, direct.c.Semaphore("s", 100), 100)
}

// Whoever is refused in a shared call waits in line, and is served.
func TestWhoIsRefusedInASharedCallWaitsAndIsServed(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	r, direct := newRig(t, far, patient), newRig(t, near, patient)
	const capacity, callers = 30, 90
	sem := r.c.Semaphore("s", capacity)
	release(t, acquire(t, sem, 1))
	var served atomic.Int32
	enough := make(chan struct{})
	many(callers, func(int) {
		p, err := sem.Acquire(within(t), 1)
		if err != nil {
			t.Error(err)
			return
		}
		if served.Add(1) == capacity {
			close(enough)
		}
		<-enough // all that are there are out, and the others have been refused
		if err := p.Release(within(t)); err != nil {
			t.Error(err)
		}
	})
	require.EqualValues(t, callers, served.Load())
	allBack(t, direct.c.Semaphore("s", capacity), capacity)
}
