package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A lock and unlock that nobody else wants, from 1 goroutine, and from 64 on a lock each.
func BenchmarkUncontended(b *testing.B) {
	for _, o := range uncontended {
		b.Run(o.name, o.run)
	}
}

// A permit that nobody else wants, acquired and released, from 1 goroutine, and from 64 on a semaphore each.
func BenchmarkPermits(b *testing.B) {
	for _, o := range permitCycles {
		b.Run(o.name, o.run)
	}
}

// way is one way to acquire something of a name.
type way struct {
	name string
	of   func(b *testing.B, s *redistest.Server) load.Acquire
}

var uncontended = cycles(
	way{"floor-SETNX", rawSetNX}, way{"floor-same-scripts", lockScripts}, way{"redlatch", redlatch},
	way{"plain", ofLocks(func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) })},
	way{"read", ofLocks(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() })},
	way{"write", ofLocks(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() })},
)

var permitCycles = cycles(way{"floor-same-scripts", permitScripts}, way{"permit", permit},
	way{"permit-of-one", permitOfOne}, way{"counting", countingPermit})

func cycles(ways ...way) (out []workload) {
	for _, goroutines := range []int{1, 64} {
		for _, w := range ways {
			out = append(out, workload{fmt.Sprintf("%s/%d", w.name, goroutines), func(b *testing.B) {
				alone(b, goroutines, w.of)
			}})
		}
	}
	return out
}

func redlatch(b *testing.B, s *redistest.Server) load.Acquire {
	return acquire(open(b, s, rlock.Options{}))
}

func ofLocks(of func(c *rlock.Client, name string) *rlock.Lock) func(*testing.B, *redistest.Server) load.Acquire {
	return func(b *testing.B, s *redistest.Server) load.Acquire {
		c := open(b, s, rlock.Options{})
		return func(ctx context.Context, name string) (load.Release, error) { return held(of(c, name), ctx) }
	}
}

func acquirePermit(c *rsemaphore.Client) load.Acquire {
	return func(ctx context.Context, name string) (load.Release, error) {
		p, err := c.Semaphore(name, permits).Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}

func permit(b *testing.B, s *redistest.Server) load.Acquire {
	return acquirePermit(openSemaphores(b, s.Option()))
}

// permitOfOne: all goroutines take permits of one semaphore, which has enough for all.
func permitOfOne(b *testing.B, s *redistest.Server) load.Acquire {
	c := openSemaphores(b, s.Option())
	return func(ctx context.Context, _ string) (load.Release, error) {
		p, err := c.Semaphore("one", 1000).Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}

func countingPermit(b *testing.B, s *redistest.Server) load.Acquire {
	c := openSemaphores(b, s.Option())
	var set sync.Map
	return func(ctx context.Context, name string) (load.Release, error) {
		sem := c.CountingSemaphore(name)
		if _, done := set.LoadOrStore(name, true); !done {
			if _, err := sem.TrySetPermits(ctx, permits, 0); err != nil {
				return nil, err
			}
		}
		if err := sem.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return sem.Release(ctx, 1) }, nil
	}
}

// rawSetNX is the smallest lock that is one: two small scripts through rueidis.
func rawSetNX(b *testing.B, s *redistest.Server) load.Acquire {
	c := s.Client(b)
	take := rueidis.NewLuaScript("return redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2])")
	drop := rueidis.NewLuaScript("if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0")
	lease := strconv.FormatInt((30 * time.Second).Milliseconds(), 10)
	return func(ctx context.Context, name string) (load.Release, error) {
		if err := take.Exec(ctx, c, []string{name}, []string{"owner", lease}).Error(); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return drop.Exec(ctx, c, []string{name}, []string{"owner"}).Error() }, nil
	}
}

func lockScripts(b *testing.B, s *redistest.Server) load.Acquire {
	c := s.Client(b)
	return sameScripts(b, s, func(o rueidis.ClientOption) load.Acquire { return acquire(openWith(b, o, rlock.Options{})) },
		func(ctx context.Context, name string) (bool, error) {
			return c.Do(ctx, c.B().Exists().Key(name).Build()).AsBool()
		})
}

func permitScripts(b *testing.B, s *redistest.Server) load.Acquire {
	c := openSemaphores(b, s.Option())
	return sameScripts(b, s, func(o rueidis.ClientOption) load.Acquire { return acquirePermit(openSemaphores(b, o)) },
		func(ctx context.Context, name string) (bool, error) {
			n, err := c.Semaphore(name, permits).Available(ctx)
			return n == permits-1, err
		})
}

// sameScripts sends the two calls of redlatch again that acquire and release a name, and does nothing else. taken looks
// at a name.
func sameScripts(b *testing.B, s *redistest.Server, of func(o rueidis.ClientOption) load.Acquire,
	taken func(ctx context.Context, name string) (bool, error)) load.Acquire {
	const recorded = "bench-recorded-name"
	ctx := context.Background()
	cycle := func(o rueidis.ClientOption) {
		release, err := of(o)(ctx, recorded)
		require.NoError(b, err)
		require.NoError(b, release(ctx))
	}
	cycle(s.Option()) // has the server know the scripts
	var rec load.Recorder
	cycle(rec.Option(s.Option()))
	calls, err := rec.Calls("EVALSHA", "EVAL")
	require.NoError(b, err)
	require.Len(b, calls, 2, "script calls that acquire and release: %q", calls)

	c := s.Client(b)
	var names sync.Map
	replay := func(name string) func(context.Context, int) error {
		if f, ok := names.Load(name); ok {
			return f.(func(context.Context, int) error)
		}
		f := load.Replay(c, calls, recorded, name)
		names.Store(name, f)
		return f
	}
	for i, want := range []bool{true, false} { // a floor that is refused would be a very low one
		require.NoError(b, replay("other")(ctx, i))
		is, err := taken(ctx, "other")
		require.NoError(b, err)
		require.Equal(b, want, is, "taken, after %q was sent again", calls[i])
	}
	return func(ctx context.Context, name string) (load.Release, error) {
		f := replay(name)
		if err := f(ctx, 0); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return f(ctx, 1) }, nil
	}
}

func alone(b *testing.B, goroutines int, of func(*testing.B, *redistest.Server) load.Acquire) {
	s := start(b)
	lock := of(b, s)
	ctx := context.Background()
	cycle := func(name string) error {
		release, err := lock(ctx, name)
		if err != nil {
			return err
		}
		return release(ctx)
	}
	for i := range goroutines { // scripts, connections
		require.NoError(b, cycle("own:"+strconv.Itoa(i)))
	}
	var all load.Histogram
	var mu sync.Mutex
	m := newMeter(b, s)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			var h load.Histogram
			name := "own:" + strconv.Itoa(i)
			for range (b.N + goroutines - 1 - i) / goroutines { // b.N in all
				start := time.Now()
				if err := cycle(name); err != nil {
					b.Error(err)
					return
				}
				h.Add(time.Since(start))
			}
			mu.Lock()
			all.Merge(h)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	m.report(b, all.Count)
	reportTimes(b, &all)
}
