package bench_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// A lock and unlock that nobody else wants, from 1 goroutine, and from 64 on a lock each.
func BenchmarkUncontended(b *testing.B) {
	for _, o := range uncontended {
		b.Run(o.name, o.run)
	}
}

var uncontended = []workload{
	{"floor-SETNX/1", func(b *testing.B) { alone(b, 1, rawSetNX) }},
	{"floor-same-scripts/1", func(b *testing.B) { alone(b, 1, sameScripts) }},
	{"redlatch/1", func(b *testing.B) { alone(b, 1, redlatch) }},
	{"floor-SETNX/64", func(b *testing.B) { alone(b, 64, rawSetNX) }},
	{"floor-same-scripts/64", func(b *testing.B) { alone(b, 64, sameScripts) }},
	{"redlatch/64", func(b *testing.B) { alone(b, 64, redlatch) }},
}

func redlatch(b *testing.B, s *redistest.Server) load.Acquire {
	return acquire(open(b, s, rlock.Options{}))
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

// sameScripts sends redlatch's own two calls again and does nothing else.
func sameScripts(b *testing.B, s *redistest.Server) load.Acquire {
	const recorded = "bench-recorded-name"
	ctx := context.Background()
	cycle := func(o rueidis.ClientOption) {
		release, err := acquire(openWith(b, o, rlock.Options{}))(ctx, recorded)
		require.NoError(b, err)
		require.NoError(b, release(ctx))
	}
	cycle(s.Option()) // has the server know the scripts
	var rec load.Recorder
	cycle(rec.Option(s.Option()))
	calls, err := rec.Calls("EVALSHA", "EVAL")
	require.NoError(b, err)
	require.Len(b, calls, 2, "script calls of a lock and an unlock: %q", calls)

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
		is, err := c.Do(ctx, c.B().Exists().Key("other").Build()).AsBool()
		require.NoError(b, err)
		require.Equal(b, want, is, "the lock after %q was sent again", calls[i])
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
