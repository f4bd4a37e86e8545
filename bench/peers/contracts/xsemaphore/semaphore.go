// Package semaphore has the type of golang.org/x/sync/semaphore, made of a WeightedSemaphore on a server.
package semaphore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Weighted is a WeightedSemaphore. Permits are handles: it keeps them for the caller that releases.
type Weighted struct {
	in   *rsemaphore.Semaphore
	size int64

	mu   sync.Mutex
	held []*rsemaphore.Permit
}

// NewWeighted is the peer's: it panics for a negative size.
func NewWeighted(n int64) *Weighted {
	if n < 0 {
		panic("semaphore: negative size")
	}
	return &Weighted{in: rig.Shared().Semaphores().WeightedSemaphore(rig.Name(), int(n)), size: n}
}

// Acquire is the peer's: a ctx that has ended is its error alone, nothing is acquired at once, and too much is waited
// for.
func (w *Weighted) Acquire(ctx context.Context, n int64) error {
	switch {
	case n == 0:
		return nil
	case n > w.size:
		<-ctx.Done()
		return ctx.Err()
	}
	p, err := w.in.Acquire(ctx, int(n))
	if errors.Is(err, redlatch.ErrInvalidOption) {
		panic(err)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, ctx.Err()) {
			return ctx.Err()
		}
		return err
	}
	w.keep(p)
	return nil
}

// TryAcquire is the peer's.
func (w *Weighted) TryAcquire(n int64) bool {
	if n == 0 {
		return true
	}
	p, err := w.in.TryAcquire(context.Background(), int(n), 0, 0)
	if errors.Is(err, redlatch.ErrInvalidOption) {
		panic(err)
	}
	if err != nil {
		return false
	}
	w.keep(p)
	return true
}

func (w *Weighted) keep(p *rsemaphore.Permit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, p)
}

// Release is the peer's: of whatever was acquired, and in parts.
func (w *Weighted) Release(n int64) {
	if n < 0 {
		panic("semaphore: a negative weight")
	}
	for n > 0 {
		w.mu.Lock()
		if len(w.held) == 0 {
			w.mu.Unlock()
			panic("semaphore: released more than held")
		}
		i := max(0, slices.IndexFunc(w.held, func(p *rsemaphore.Permit) bool { return int64(p.N()) <= n }))
		p := w.held[i]
		part := min(int(n), p.N())
		var err error
		if part == p.N() {
			w.held = slices.Delete(w.held, i, i+1)
			w.mu.Unlock()
			err = p.Release(context.Background())
		} else {
			err = p.ReleasePart(context.Background(), part)
			w.mu.Unlock()
		}
		if err != nil {
			panic(err)
		}
		n -= int64(part)
	}
}
