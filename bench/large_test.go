package bench_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// What one process and one server bear. With -short it is a hundredth.
func BenchmarkLarge(b *testing.B) { runs(b, large) }

var large = []workload{
	{"held-100000", func(b *testing.B) { renewal(b, sized(100_000), 30*time.Second) }},
	{"waiting-40000", func(b *testing.B) { crowd(b, sized(40_000)) }},
}

func sized(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

// renewal holds n locks and does nothing for a third of the lease, in which each is renewed once. ns/op is that time.
func renewal(b *testing.B, n int, lease time.Duration) {
	if testing.Short() {
		lease /= 10
	}
	s := start(b)
	locks := openLocks(b, s.Option(), rlock.Options{WatchdogTimeout: lease,
		Logger: slog.New(slog.DiscardHandler)}) // a machine that is too busy loses thousands
	hold, err := locks.Reentrant("warm").Lock(b.Context())
	require.NoError(b, err)
	require.NoError(b, hold.Unlock(b.Context()))
	before := memory()
	holds := make([]*rlock.Hold, n)
	inParallel(b, n, func(i int) (err error) {
		holds[i], err = locks.Reentrant("held:" + strconv.Itoa(i)).Lock(context.Background())
		return err
	})
	time.Sleep(100 * time.Millisecond) // a hold that lasts is looked at once
	each := float64(memory()-before) / float64(n)
	m := newMeter(b, s)
	b.ResetTimer()
	for range b.N {
		m.watch(b, lease/3)
	}
	b.StopTimer()
	m.report(b, float64(b.N)*(lease/3).Seconds(), "s")
	b.ReportMetric(each, "B/each")
	var lost atomic.Int64
	inParallel(b, n, func(i int) error {
		err := holds[i].Unlock(context.Background())
		if errors.Is(err, redlatch.ErrLost) {
			lost.Add(1)
			return nil
		}
		return err
	})
	b.ReportMetric(float64(lost.Load()), "lost")
}

// crowd has n goroutines wait for a hundredth as many locks, and then pass them on. ns/op is the time for all of them,
// without the second in which they only wait.
func crowd(b *testing.B, n int) {
	s := start(b)
	mine, other := openLocks(b, s.Option(), rlock.Options{}), openLocks(b, s.Option(), rlock.Options{})
	names := max(n/100, 1)
	name := func(i int) string { return "crowd:" + strconv.Itoa(i%names) }
	m := newMeter(b, s)
	var served time.Duration
	for range b.N {
		holds := make([]*rlock.Hold, names)
		inParallel(b, names, func(i int) (err error) {
			holds[i], err = other.Reentrant(name(i)).Lock(context.Background())
			return err
		})
		before := memory()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				release, err := held(context.Background(), mine.Reentrant(name(i)))
				if err == nil {
					err = release(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
			})
		}
		for i := range names {
			inLine(b, other.Reentrant(name(i)))
		}
		b.ReportMetric(float64(memory()-before)/float64(n), "B/each")
		m.watch(b, time.Second)
		began := time.Now()
		inParallel(b, names, func(i int) error { return holds[i].Unlock(context.Background()) })
		all.Wait()
		served += time.Since(began)
	}
	m.report(b, float64(b.N), "s")
	b.ReportMetric(float64(served)/float64(b.N), "ns/op")
}

// inLine returns when a process stands in line for the lock.
func inLine(b *testing.B, l *rlock.Lock) {
	b.Helper()
	redistest.Eventually(b, time.Minute, "a process waits for "+l.Name(), func() bool {
		state, err := l.Inspect(b.Context())
		require.NoError(b, err)
		return len(state.Waiters) > 0
	})
}

// watch measures what the server does while the program only waits.
func (m *meter) watch(b *testing.B, d time.Duration) {
	m.resume(b)
	time.Sleep(d)
	m.pause(b)
}

// inParallel calls f for 0 to n-1, some at a time.
func inParallel(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	const hands = 64
	errs := make([]error, hands)
	var wg sync.WaitGroup
	for first := range hands {
		wg.Go(func() {
			for i := first; i < n && errs[first] == nil; i += hands {
				errs[first] = f(i)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
}

// memory is the heap and the stacks in use, after a collection.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
