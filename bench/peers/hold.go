package main

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// held names the locks that one process holds while others look.
func held(i int) string { return "bench:held:" + strconv.Itoa(i) }

// forAll runs f for 0 to n-1, sixteen at a time, and returns the first error.
func forAll(n int, f func(i int) error) error {
	var next atomic.Int64
	var first error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(n, 16) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// hold acquires locks and keeps them. The answer has what they cost in goroutines and bytes of heap and stack.
func (w *workerProcess) hold(ctx context.Context, o order) (answer, error) {
	// No other worker wants them, so they come soon or never. When they are there their context must not end: with one
	// peer the holds would, too.
	ctx, giveUp := context.WithCancel(ctx)
	late := time.AfterFunc(patience/2, giveUp)
	defer late.Stop()
	// connections, buffers and whatever else the first lock makes are not the price of a lock
	if err := forAll(min(o.Workers, 64), func(i int) error {
		release, err := w.locker.Lock(ctx, "bench:warm:"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		return release(ctx)
	}); err != nil {
		return answer{}, err
	}
	goroutines, memory := footprint()
	if err := forAll(o.Workers, func(i int) error {
		release, err := w.locker.Lock(ctx, held(i))
		if err == nil {
			w.keep(release)
		}
		return err
	}); err != nil {
		return answer{}, err
	}
	g, m := footprint()
	return answer{Count: int64(o.Workers), Goroutines: g - goroutines, Heap: m - memory}, nil
}

func footprint() (goroutines int, memory int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)
}

// await waits for all the locks that another process holds, and says so of each at the moment that it has it.
func (w *workerProcess) await(ctx context.Context, o order) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var wg sync.WaitGroup
	var first error
	var mu sync.Mutex
	for i := range o.Workers {
		wg.Go(func() {
			release, err := w.locker.Lock(ctx, held(i))
			if err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
				return
			}
			w.answer(answer{Got: true})
			w.keep(release)
		})
	}
	wg.Wait()
	return answer{}, first
}

// probe counts how many of those locks another process would be given now.
func (w *workerProcess) probe(ctx context.Context, o order) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	var got atomic.Int64
	var wg sync.WaitGroup
	for i := range o.Workers {
		wg.Go(func() {
			if _, err := w.locker.Lock(ctx, held(i)); err == nil {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	return answer{Count: got.Load()}, nil
}
