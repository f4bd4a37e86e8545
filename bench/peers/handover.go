package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// A waiter has waited between these before the holder lets go: long enough to be asleep whatever its peer does, and at
// random, so that no peer's polling falls into step with it.
const (
	shortestWait = 15 * time.Millisecond
	longestWait  = 115 * time.Millisecond
)

// handover measures, for pairs of workers on a lock each, the time from one calling unlock to the other holding: one is
// of client a, the other of client b, and they change sides each time. The first hand-over of a pair does not count.
func handover(ctx context.Context, a, b Locker, o order) load.Outcome {
	end := time.Now().Add(o.Duration)
	ctx, cancel := context.WithDeadline(ctx, end.Add(stuck))
	defer cancel()
	var out load.Outcome
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range o.Workers {
		wg.Go(func() {
			waits, errs, first := handoverPair(ctx, a, b, "bench:handover:"+strconv.Itoa(i), end)
			mu.Lock()
			defer mu.Unlock()
			out.Waits.Merge(waits)
			out.Ops += waits.Count
			out.Errors += errs
			if first != nil && out.FirstError == "" {
				out.FirstError = first.Error()
			}
		})
	}
	wg.Wait()
	return out
}

func handoverPair(ctx context.Context, holder, waiter Locker, name string,
	end time.Time) (waits load.Histogram, errs int64, first error) {
	fail := func(err error) {
		errs++
		if first == nil {
			first = err
		}
	}
	release, err := holder.Lock(ctx, name)
	if err != nil {
		fail(err)
		return waits, errs, first
	}
	type got struct {
		at      time.Time
		release load.Release
		err     error
	}
	for n := 0; time.Now().Before(end); n++ {
		acquired := make(chan got, 1)
		go func() {
			r, err := waiter.Lock(ctx, name)
			acquired <- got{time.Now(), r, err}
		}()
		time.Sleep(shortestWait + rand.N(longestWait-shortestWait))
		start := time.Now()
		if err := release(ctx); err != nil {
			fail(err)
		}
		g := <-acquired
		if g.err != nil {
			fail(g.err)
			return waits, errs, first
		}
		if n > 0 {
			waits.Add(g.at.Sub(start))
		}
		release = g.release
		holder, waiter = waiter, holder
	}
	if err := release(ctx); err != nil {
		fail(err)
	}
	return waits, errs, first
}
