// Package load is what the benchmarks of this repository share: how a lock is driven, what is recorded of it, and
// what the server had to do for it.
package load

import (
	"context"
	"sync"
	"time"
)

// Acquire waits for the lock of that name and returns what releases it.
type Acquire func(ctx context.Context, name string) (Release, error)

// Release ends one hold.
type Release func(ctx context.Context) error

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
	// Watch, if set, says when acquisitions count; nil: always.
	Watch *Watch
	// Alone: one worker may hold the lock at a time, which Watch judges.
	Alone bool
	// Cycle has the release timed, too: Outcome.Waits are then whole cycles.
	Cycle bool
}

// Outcome is what the workers saw.
type Outcome struct {
	// Waits are the times from the call to the hold, while they count. A wait that was still going on at the end is
	// among them, as long as it had lasted: otherwise a lock that starves its waiters would look quick.
	Waits      Histogram `json:"waits"`
	Shares     []int64   `json:"shares"` // acquisitions of each worker, while they count
	Ops        int64     `json:"ops"`    // their sum
	Unfinished int64     `json:"unfinished"`
	Errors     int64     `json:"errors"`
	FirstError string    `json:"first_error,omitempty"`
}

// Run drives Spec.Workers goroutines until ctx ends.
func Run(ctx context.Context, s Spec) Outcome {
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
		counts := w.spec.Watch == nil || w.spec.Watch.Counts()
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
	if w.spec.Alone {
		seen := w.spec.Watch.Enter(w.id)
		defer w.spec.Watch.Leave(w.id, seen)
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
