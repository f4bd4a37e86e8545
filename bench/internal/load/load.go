// Package load is what the benchmarks of this repository share: how a lock is driven, what is recorded of it, and
// what the server had to do for it.
package load

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Acquire waits for the lock of that name and returns what releases it.
type Acquire func(ctx context.Context, name string) (Release, error)

// Release ends one hold.
type Release func(ctx context.Context) error

// Section watches a critical section from outside the lock's own server. It must be cheap, or it hides races.
type Section interface {
	// Enter is called by the one worker that should be alone, Leave by the same one when it is done.
	Enter(worker int64)
	Leave(worker int64)
}

// Spec says how workers use locks.
type Spec struct {
	Workers int
	First   int64              // number of the first worker; several processes have different ones
	Name    func(i int) string // which lock worker i uses: one for all, or one each
	Acquire Acquire
	// Inside is the work under the lock; nil for none.
	Inside func(ctx context.Context) error
	// Think is how long a worker stays away after its release.
	Think time.Duration
	// Section, if set, learns who holds the lock.
	Section Section
	// Recording reports whether acquisitions count now; nil: always.
	Recording func() bool
	// Cycle has the release timed, too: Outcome.Waits are then whole cycles.
	Cycle bool
}

// Outcome is what the workers saw.
type Outcome struct {
	// Waits are the times from the call to the hold, while Recording. A wait that was still going on at the end is
	// among them, as long as it had lasted: otherwise a lock that starves its waiters would look quick.
	Waits      Histogram `json:"waits"`
	Shares     []int64   `json:"shares"` // acquisitions of each worker, while Recording
	Ops        int64     `json:"ops"`    // their sum
	Unfinished int64     `json:"unfinished"`
	Errors     int64     `json:"errors"`
	FirstError string    `json:"first_error,omitempty"`
}

// Run drives Spec.Workers goroutines until ctx ends.
func Run(ctx context.Context, s Spec) Outcome {
	if s.Recording == nil {
		s.Recording = func() bool { return true }
	}
	out := Outcome{Shares: make([]int64, s.Workers)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range s.Workers {
		wg.Go(func() {
			w := worker{spec: s, id: s.First + int64(i), name: s.Name(i)}
			w.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			out.Waits.Merge(w.waits)
			out.Shares[i] = w.ops
			out.Ops += w.ops
			out.Unfinished += w.unfinished
			out.Errors += w.errors
			if out.FirstError == "" && w.first != nil {
				out.FirstError = w.first.Error()
			}
		})
	}
	wg.Wait()
	return out
}

type worker struct {
	spec                    Spec
	id                      int64
	name                    string
	waits                   Histogram
	ops, unfinished, errors int64
	first                   error
}

func (w *worker) run(ctx context.Context) {
	// A release must not be refused because the run is over.
	calm := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		start := time.Now()
		release, err := w.spec.Acquire(ctx, w.name)
		waited := time.Since(start)
		if err != nil {
			if ctx.Err() != nil {
				w.unfinished++
				w.waits.Add(waited)
				return
			}
			w.fail(err)
			continue
		}
		w.hold(calm)
		counts := w.spec.Recording()
		if err := release(calm); err != nil {
			w.fail(err)
			continue
		}
		if counts {
			if w.spec.Cycle {
				waited = time.Since(start)
			}
			w.waits.Add(waited)
			w.ops++
		}
		if w.spec.Think > 0 {
			time.Sleep(w.spec.Think)
		}
	}
}

// hold does what is done under the lock.
func (w *worker) hold(ctx context.Context) {
	if s := w.spec.Section; s != nil {
		s.Enter(w.id)
		defer s.Leave(w.id)
	}
	if w.spec.Inside != nil {
		if err := w.spec.Inside(ctx); err != nil {
			w.fail(err)
		}
	}
}

// fail counts an error and pauses, so that a lock that refuses does not make its worker spin.
func (w *worker) fail(err error) {
	w.errors++
	if w.first == nil {
		w.first = err
	}
	time.Sleep(time.Millisecond)
}

// Alone is a Section for the workers of one process.
type Alone struct {
	inside   atomic.Int64
	count    int64 // guarded by the lock under test and by nothing else; read and written apart, so overlaps lose some
	entered  atomic.Int64
	overlaps atomic.Int64
}

// Enter implements Section.
func (a *Alone) Enter(worker int64) {
	a.entered.Add(1)
	if !a.inside.CompareAndSwap(0, worker+1) {
		a.overlaps.Add(1)
		a.inside.Store(worker + 1)
	}
	n := atomic.LoadInt64(&a.count)
	runtime.Gosched() // an intruder gets its chance to read the same number
	atomic.StoreInt64(&a.count, n+1)
}

// Leave implements Section.
func (a *Alone) Leave(worker int64) { a.inside.CompareAndSwap(worker+1, 0) }

// Broken is how often the lock let in a second worker, as found in two ways: by who was inside, and by what is missing
// from the count.
func (a *Alone) Broken() (overlaps, lost int64) {
	return a.overlaps.Load(), a.entered.Load() - atomic.LoadInt64(&a.count)
}
