package redlatchotel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"github.com/redlatch/redlatch/internal/measure"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	mostHolders = 8           // to which one span is linked: a semaphore may have thousands
	patience    = time.Second // for one look
)

// finder looks up who holds what others wait for. A nil *finder finds no one.
type finder struct {
	clients func() ([]*rlock.Client, []*rsemaphore.Client)
	shared  singleflight.Group // by kind and name

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup // way
}

// look looks in the background, and gives the spans of the holders to tell. It reports whether it does.
func (f *finder) look(ctx context.Context, kind, name string, tell func([]trace.SpanContext)) bool {
	if f == nil || kind == measure.Election { // its client is not watched
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.under.Go(func() {
		found, _, _ := f.shared.Do(kind+" "+name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			return f.find(ctx, kind, name), nil
		})
		tell(found.([]trace.SpanContext))
	})
	return true
}

// find asks the clients that are watched. What cannot be looked up has no links.
func (f *finder) find(ctx context.Context, kind, name string) (found []trace.SpanContext) {
	add := func(label string) {
		if span := SpanContext(label); span.IsValid() && len(found) < mostHolders {
			found = append(found, span)
		}
	}
	locks, semaphores := f.clients()
	if kind == measure.Lock {
		for _, c := range locks {
			state, _ := c.Reentrant(name).Inspect(ctx) // of whatever kind the lock is
			for _, h := range state.Holders {
				add(h.Label)
			}
		}
		return found
	}
	for _, c := range semaphores {
		state, err := c.Semaphore(name, 1).Inspect(ctx)
		for _, h := range state.Permits {
			add(h.Label)
		}
		if err != nil || len(state.Permits) == 0 {
			weighted, _ := c.WeightedSemaphore(name, 1).Inspect(ctx)
			for _, h := range weighted.Permits {
				add(h.Label)
			}
		}
	}
	return found
}

// close begins no more looks, and waits for those under way.
func (f *finder) close(ctx context.Context) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		f.under.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
