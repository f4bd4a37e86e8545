package rsemaphore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// load is a number of processes whose goroutines acquire and release one semaphore for a while.
type load struct {
	processes, goroutines, capacity int
	n                               func(process, goroutine int) int // permits of one acquisition; nil: 1
	work                            time.Duration
	delay                           time.Duration // each way between a process and the server
}

// run reports what came of it: acquisitions a second, the times waited, permits in use on the average, script calls for
// each acquisition with its release, and Jain's index over goroutines.
func (l load) run(b *testing.B) {
	s := redistest.Start(b)
	direct := newRig(b, s, rsemaphore.Options{CallTimeout: 10 * time.Second})
	lasts := redistest.Sized(300*time.Millisecond, 4*time.Second, 4*time.Second)
	var mu sync.Mutex
	var waits []time.Duration
	var counts []float64
	var used time.Duration
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	var sems []*rsemaphore.Semaphore
	for range l.processes {
		server := s
		if l.delay > 0 {
			p := redistest.NewProxy(b, s)
			p.Delay(l.delay, l.delay)
			server = p.Server()
		}
		sem := newRig(b, server, rsemaphore.Options{CallTimeout: 10 * time.Second}).c.Semaphore("s", l.capacity)
		release(b, acquire(b, sem, 1))
		sems = append(sems, sem)
	}
	before, began := redistest.ScriptCalls(b, direct.redis), time.Now()
	for i, sem := range sems {
		for j := range l.goroutines {
			n := 1
			if l.n != nil {
				n = l.n(i, j)
			}
			wg.Go(func() {
				var own []time.Duration
				var held time.Duration
				for time.Since(began) < lasts {
					asked := time.Now()
					p, err := sem.Acquire(ctx, n)
					if err != nil {
						break
					}
					own = append(own, time.Since(asked))
					got := time.Now()
					if l.work > 0 {
						time.Sleep(l.work)
					}
					held += time.Since(got) * time.Duration(n)
					if err := p.Release(context.Background()); err != nil {
						b.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				waits, counts, used = append(waits, own...), append(counts, float64(len(own))), used+held
			})
		}
	}
	time.AfterFunc(lasts+10*time.Second, cancel)
	wg.Wait()
	cancel()
	lasted := time.Since(began)
	calls := redistest.ScriptCalls(b, direct.redis) - before
	slices.Sort(waits)
	sum, squares := 0.0, 0.0
	for _, c := range counts {
		sum, squares = sum+c, squares+c*c
	}
	at := func(q float64) float64 { return float64(waits[int(q*float64(len(waits)-1))].Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum/lasted.Seconds(), "acq/s")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "longest-ms")
	b.ReportMetric(float64(used)/float64(lasted), "in-use")
	b.ReportMetric(float64(calls)/max(1, sum), "calls/acq")
	b.ReportMetric(sum*sum/(float64(len(counts))*max(1, squares)), "Jain")
}

// BenchmarkWaitingForPermits prints, for each load, what waiting for permits costs. Run it with -benchtime 1x.
func BenchmarkWaitingForPermits(b *testing.B) {
	all := func(k int) func(int, int) int {
		return func(process, _ int) int {
			if process == 0 {
				return k
			}
			return 1
		}
	}
	for _, c := range []struct {
		name string
		load load
	}{
		{"64 goroutines, 1,000 permits", load{processes: 1, goroutines: 64, capacity: 1000}},
		{"64 goroutines, 1,000 permits, 2 ms away",
			load{processes: 1, goroutines: 64, capacity: 1000, delay: time.Millisecond}},
		{"64 on 50, 20 ms of work", load{processes: 1, goroutines: 64, capacity: 50, work: 20 * time.Millisecond}},
		{"64 on 50, 20 ms of work, 2 ms away",
			load{processes: 1, goroutines: 64, capacity: 50, work: 20 * time.Millisecond, delay: time.Millisecond}},
		{"4 processes of 32 on 50, 20 ms of work, 2 ms away",
			load{processes: 4, goroutines: 32, capacity: 50, work: 20 * time.Millisecond, delay: time.Millisecond}},
		{"64 on 50, 20 ms of work, 10 ms away",
			load{processes: 1, goroutines: 64, capacity: 50, work: 20 * time.Millisecond, delay: 5 * time.Millisecond}},
		{"10 processes of 4 on 4, 2 ms of work", load{processes: 10, goroutines: 4, capacity: 4, work: 2 * time.Millisecond}},
		{"2 processes on 2", load{processes: 2, goroutines: 2, capacity: 2, work: time.Millisecond}},
		{"10 processes on 2", load{processes: 10, goroutines: 1, capacity: 2, work: time.Millisecond}},
		{"40 processes on 2", load{processes: 40, goroutines: 1, capacity: 2, work: time.Millisecond}},
		{"5 of 5 against 12 loops of one",
			load{processes: 13, goroutines: 1, capacity: 5, work: 2 * time.Millisecond, n: all(5)}},
		{"4 of 64 ask for 50 of 50, 20 ms of work",
			load{processes: 16, goroutines: 4, capacity: 50, work: 20 * time.Millisecond, n: all(50)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				c.load.run(b)
			}
		})
	}
}
