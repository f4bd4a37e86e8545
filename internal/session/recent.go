package session

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// The error of a call that gave up names those who hold what it waited for. That is for people, so it is asked for only
// after a wait that took so long that a call more is no matter.
const (
	// NamedAfter is how long a call has waited at least whose error names the holders.
	NamedAfter = 100 * time.Millisecond
	// NamedWithin bounds how much later it returns for that.
	NamedWithin = 20 * time.Millisecond
	// MostNamed is how many holders an error has at most.
	MostNamed = errs.MostHolders
	// recent is how long an answer serves those that ask after it.
	recent = 100 * time.Millisecond
)

// Holders has those who hold a thing looked up, for the errors of calls that gave up. Calls for one thing share a
// look-up, and what it found serves those that come within 100 ms of its end: however many callers of a process give
// up, they send ten in a second at most. The zero value is ready.
type Holders[H any] struct {
	mu sync.Mutex
	of map[string]*lookUp[H]
}

type lookUp[H any] struct {
	done  chan struct{}
	found []H // after done
}

// Of returns what ask finds, which has NamedWithin for it, whether or not ctx has ended; nil if the call has not waited
// for NamedAfter, or if it was cancelled: then no one waits for its error.
func (s *Holders[H]) Of(ctx context.Context, key string, waited time.Duration,
	ask func(ctx context.Context) []H) []H {
	if waited < NamedAfter || ctx.Err() == context.Canceled {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), NamedWithin)
	defer cancel()
	s.mu.Lock()
	x := s.of[key]
	if x != nil {
		s.mu.Unlock()
		select {
		case <-x.done:
			return x.found
		case <-ctx.Done(): // the other began its look-up at the same time
			return nil
		}
	}
	x = &lookUp[H]{done: make(chan struct{})}
	if s.of == nil {
		s.of = map[string]*lookUp[H]{}
	}
	s.of[key] = x
	s.mu.Unlock()
	defer time.AfterFunc(recent, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.of, key)
	})
	defer close(x.done)
	x.found = ask(ctx)
	return x.found
}
