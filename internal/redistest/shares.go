package redistest

import (
	"context"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/errs"
)

// Shares counts, as an Observer, the calls that requests of a client share.
type Shares struct{ Calls, Requests atomic.Int64 }

// Observe is the Observer.
func (s *Shares) Observe(ctx context.Context, event errs.Event) context.Context {
	if event.Kind == errs.EventShared {
		s.Calls.Add(1)
		s.Requests.Add(event.N)
	}
	return ctx
}
