package bench_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
)

// op is one operation of the goroutine with that number, the n-th of its benchmark.
type op func(ctx context.Context, goroutine int, n int64) error

// maker opens the clients of an operation.
type maker func(b *testing.B, s *redistest.Server) op

// workload is one line of the output.
type workload struct {
	name string
	run  func(b *testing.B)
}

// runs runs each workload as a benchmark.
func runs(b *testing.B, all []workload) {
	for _, w := range all {
		b.Run(w.name, w.run)
	}
}

// with makes a workload of each operation and number of goroutines.
func with(goroutines []int, floor maker, subjects map[string]maker, order ...string) (out []workload) {
	for _, name := range order {
		for _, n := range goroutines {
			out = append(out, workload{name + "/" + strconv.Itoa(n), func(b *testing.B) {
				beside(b, n, start(b), subjects[name], start(b), floor, "x-floor")
			}})
		}
	}
	return out
}

// beside measures an operation and its floor in turns, each on a server of its own, and reports the ratio of their
// times. Only the operation's turns are on the benchmark's clock. The floor gets at most half as many operations,
// because its ratio needs no more.
func beside(b *testing.B, goroutines int, server *redistest.Server, subject maker, other *redistest.Server,
	floor maker, ratio string) {
	const turns = 10
	do, least := subject(b, server), floor(b, other)
	var done, floorDone int64
	var times, floorTimes load.Histogram
	drive(b, goroutines, int64(goroutines), &done, do, &load.Histogram{}) // scripts, connections
	drive(b, goroutines, int64(goroutines), &floorDone, least, &load.Histogram{})
	m := newMeter(b, server)
	var took, floorTook time.Duration
	var ops, floorOps int64
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for turn := range int64(turns) {
		n := int64(b.N)*(turn+1)/turns - int64(b.N)*turn/turns
		if n == 0 {
			continue
		}
		m.resume(b)
		b.StartTimer()
		last := drive(b, goroutines, n, &done, do, &times)
		b.StopTimer()
		m.pause(b)
		half := min(max(n/2, min(n, int64(goroutines))), 100*int64(goroutines))
		if floorOps > 0 { // it takes no longer than the operation: of some, a call is answered without the server
			each := float64(floorTook) / float64(floorOps)
			half = min(max(n/2, 1), max(int64(float64(last)/each), 1))
		}
		floorTook += drive(b, goroutines, half, &floorDone, least, &floorTimes)
		took, ops, floorOps = took+last, ops+n, floorOps+half
	}
	m.report(b, float64(ops), "op")
	reportTimes(b, &times)
	b.ReportMetric(micros(floorTimes.Quantile(0.99)), "floor-p99-us")
	b.ReportMetric(float64(took)/float64(ops)/(float64(floorTook)/float64(floorOps)), ratio)
}

// drive has the goroutines do n operations in all. Operations are numbered on from done.
func drive(b *testing.B, goroutines int, n int64, done *int64, do op, times *load.Histogram) time.Duration {
	b.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	from, step := *done, int64(goroutines)
	*done += n
	start := time.Now()
	for i := range goroutines {
		wg.Go(func() {
			var mine load.Histogram
			var err error
			for k := int64(i); k < n && err == nil; k += step {
				began := time.Now()
				if err = do(context.Background(), i, from+k); err == nil {
					mine.Add(time.Since(began))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			times.Merge(mine)
			if failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	require.NoError(b, failed)
	return took
}

// cycle is the operation that acquires and releases, every goroutine a name of its own.
func cycle(acquire load.Acquire) op {
	return func(ctx context.Context, goroutine int, _ int64) error {
		release, err := acquire(ctx, "own:"+strconv.Itoa(goroutine))
		if err != nil {
			return err
		}
		return release(ctx)
	}
}

// rawLock is the floor of locks and permits.
func rawLock(b *testing.B, s *redistest.Server) op {
	return cycle(load.RawLock(s.Client(b), 30*time.Second))
}
