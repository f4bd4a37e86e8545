package bench_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rlock"
)

// Locks that are only held (-held, 10,000 if not given), watched for the time of their lease (-lease). An operation is
// that time. The figures of the design are for
//
//	go -C bench test -run '^$' -bench Renewal -benchtime 1x . -held 100000 -lease 30s
func BenchmarkRenewal(b *testing.B) {
	for _, o := range renewals {
		b.Run(o.name, o.run)
	}
}

var renewals = []workload{{"held", func(b *testing.B) { renewal(b, *heldFlag, *leaseFlag) }}}

func renewal(b *testing.B, n int, lease time.Duration) {
	s := start(b)
	locks := open(b, s, rlock.Options{WatchdogTimeout: lease})
	ctx := context.Background()
	h, err := locks.Reentrant("warm").Lock(ctx)
	require.NoError(b, err)
	require.NoError(b, h.Unlock(ctx))

	goroutines, bytes := footprint()
	holds := make([]*rlock.Hold, n)
	inParallel(b, n, func(i int) (err error) {
		holds[i], err = locks.Reentrant("held:" + strconv.Itoa(i)).Lock(ctx)
		return err
	})
	time.Sleep(100 * time.Millisecond) // each hold that lasts is looked at once
	g, bs := footprint()

	m := newMeter(b, s)
	began := time.Now()
	b.ResetTimer()
	for range b.N {
		time.Sleep(lease)
	}
	b.StopTimer()
	m.perSecond(b, time.Since(began))
	b.ReportMetric(float64(bs-bytes)/float64(n), "B/lock")
	b.ReportMetric(float64(g-goroutines), "goroutines")
	inParallel(b, n, func(i int) error { return holds[i].Unlock(ctx) }) // that all were held to the end is its answer
}

// inParallel calls f for 0 to n-1, some at a time.
func inParallel(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	const hands = 32
	var wg sync.WaitGroup
	for first := range hands {
		wg.Go(func() {
			for i := first; i < n; i += hands {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func footprint() (goroutines int, bytes int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}
