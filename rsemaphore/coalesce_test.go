package rsemaphore_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A shared call for several permits of one semaphore gives what is there, in order, also what it was given back before.
func TestSharedCall_OfOneSemaphore_GivesWhatIsThere(t *testing.T) {
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

func TestAcquire_ManyFreePermits_SharesCalls(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	r, direct := newRig(t, far, patient), newRig(t, near, patient)
	const goroutines, cycles = 64, 5
	run := func(of func(g int) *rsemaphore.Semaphore, n, semaphores int) float64 {
		for g := range semaphores { // in use
			release(t, acquire(t, of(g), n))
		}
		before := redistest.ScriptCalls(t, direct.redis)
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
		return float64(redistest.ScriptCalls(t, direct.redis)-before) / (goroutines * cycles)
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

// ledger is when how much of one semaphore was in use.
type ledger struct {
	redistest.Usage
	name     string
	capacity int
}

// Replies of shared calls are lost, and requests too. Every caller gets its permit in the end, no Release reports a
// loss, no permit is taken twice, and nothing stays taken.
func TestSharedCall_Lost_CountsOnce(t *testing.T) {
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
					l.Add(from, time.Now(), 1)
					if err := p.Release(within(t)); err != nil {
						t.Error("release:", err)
					}
				}
			})
			require.Positive(t, lost.Load(), "shared calls were lost")
			require.LessOrEqual(t, l.Most(), l.capacity)
			allBack(t, direct.c.Semaphore(l.name, l.capacity), l.capacity)
		})
	}
}

// Callers leave while their shared calls have not been sent, and while they are under way. What is granted to them
// afterwards is given back.
func TestSharedCall_CallerLeft_GivesBackItsGrant(t *testing.T) {
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
func TestSharedCall_Refused_WaitsAndIsServed(t *testing.T) {
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
