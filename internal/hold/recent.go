package hold

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// The error of a call that gave up names the holders. The names are for people, so they are looked up only after a wait
// that was so long that another call does not matter.
const (
	// NamedAfter is the shortest wait after which the error of a call names the holders.
	NamedAfter = 100 * time.Millisecond
	// NamedWithin bounds how much later the call returns for the look-up.
	NamedWithin = 20 * time.Millisecond
	// MostNamed is the maximum number of holders in an error.
	MostNamed = errs.MostHolders
	// reuseFor is how long a look-up serves later calls.
	reuseFor = 100 * time.Millisecond
)

// Holders looks up the holders of a key, for the errors of calls that gave up. Calls for one key share a look-up, and
// its result serves the calls within 100 ms of its end. So the process sends ten look-ups of a key in a second at most,
// however many of its calls give up. The zero value is ready.
type Holders[H any] struct {
	mu      sync.Mutex
	lookUps map[string]*holderLookUp[H]
}

type holderLookUp[H any] struct {
	done  chan struct{}
	found []H // read after done is closed
}

// Of returns the holders that ask finds. ask has NamedWithin for it, whether or not ctx has ended. Of returns nil if
// the call has waited for less than NamedAfter. It also returns nil if the call was cancelled, because its error is
// then not read.
func (s *Holders[H]) Of(ctx context.Context, key string, waited time.Duration,
	ask func(ctx context.Context) []H) []H {
	if waited < NamedAfter || ctx.Err() == context.Canceled {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), NamedWithin)
	defer cancel()
	s.mu.Lock()
	lookUp := s.lookUps[key]
	if lookUp != nil {
		s.mu.Unlock()
		select {
		case <-lookUp.done:
			return lookUp.found
		case <-ctx.Done(): // the other call began its look-up at the same time
			return nil
		}
	}
	lookUp = &holderLookUp[H]{done: make(chan struct{})}
	if s.lookUps == nil {
		s.lookUps = map[string]*holderLookUp[H]{}
	}
	s.lookUps[key] = lookUp
	s.mu.Unlock()
	defer time.AfterFunc(reuseFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.lookUps, key)
	})
	defer close(lookUp.done)
	lookUp.found = ask(ctx)
	return lookUp.found
}
