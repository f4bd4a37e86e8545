package rsemaphore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// BenchmarkFor_Throughput compares shares with first come, first served: 64 callers of eight tenants in four processes
// take one of four permits, and hold it for no time, or for 2 or 20 ms of work. The two take turns, so that the load of
// the machine hits both. Without work the server's time for the scripts decides, and with 20 ms the permits do.
func BenchmarkFor_Throughput(b *testing.B) {
	for _, work := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
		b.Run(fmt.Sprint(work, " of work"), func(b *testing.B) { compareShares(b, work) })
	}
}

// compareShares reports the throughput as a part of that without tenants, and the least of Jain's indices over tenants.
func compareShares(b *testing.B, work time.Duration) {
	const tenants, callers, window = 8, 64, 500 * time.Millisecond
	s := redistest.Start(b)
	var rigs []*rig
	for range 4 {
		rigs = append(rigs, newRig(b, s, patient))
	}
	run := func(of func(c *rsemaphore.Client, tenant int) *rsemaphore.Semaphore) (counts *[tenants]atomic.Int64) {
		counts = new([tenants]atomic.Int64)
		ctx, cancel := context.WithTimeout(context.Background(), window)
		defer cancel()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				sem := of(rigs[i%len(rigs)].c, i%tenants)
				for ctx.Err() == nil {
					if p, err := sem.Acquire(ctx, 1); err == nil {
						counts[i%tenants].Add(1)
						time.Sleep(work)
						_ = p.Release(context.Background())
					}
				}
			})
		}
		wg.Wait()
		return counts
	}
	var ratios, fairness []float64
	for b.Loop() {
		var sums [2]float64
		var squares float64
		for shared, sum := range sums {
			counts := run(func(c *rsemaphore.Client, tenant int) *rsemaphore.Semaphore {
				sem := c.Semaphore(fmt.Sprint("s", shared), 4)
				if shared == 1 {
					sem = sem.For(fmt.Sprint("tenant", tenant))
				}
				return sem
			})
			for i := range counts {
				got := float64(counts[i].Load())
				if sum += got; shared == 1 {
					squares += got * got
				}
			}
			sums[shared] = sum
		}
		ratios = append(ratios, sums[1]/sums[0])
		fairness = append(fairness, sums[1]*sums[1]/tenants/squares)
	}
	slices.Sort(ratios)
	slices.Sort(fairness)
	b.ReportMetric(ratios[len(ratios)/2], "of-fifo")
	b.ReportMetric(fairness[0], "least-jain")
}
