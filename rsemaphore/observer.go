package rsemaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions told of what happens, each with a context and the object's name; nil ones are skipped.
// They run on the goroutine where it happens, some of them the watchdog's: they must return at once. One that panics is
// logged and otherwise ignored.
//
// The context is that of the call that is spoken of: it carries the caller's span, and may have ended. What happens while
// nobody calls, Renewed and Ended, comes with the values of the context of the acquisition, without its end.
type Observer struct {
	// Acquired: n permits were acquired after waiting so long.
	Acquired func(ctx context.Context, name string, n int, waited time.Duration)
	// NotAcquired: an acquisition ended without the permits, for the reason in err.
	NotAcquired func(ctx context.Context, name string, n int, waited time.Duration, err error)
	// Waited: an Await ended after so long: nil, the latch opened or the barrier tripped; otherwise err says why it did not.
	Waited func(ctx context.Context, name string, waited time.Duration, err error)
	// Released: Release ended, with its result, of n permits that were held for so long. Of a CountingSemaphore, which knows
	// no holders, held is negative.
	Released func(ctx context.Context, name string, n int, held time.Duration, err error)
	// Renewed: a renewal of a permit, or of the lease of a barrier's party, was confirmed (nil) or failed (err). A failure is
	// not final; Ended says when a permit is lost, Waited when a party is.
	Renewed func(ctx context.Context, name string, err error)
	// Ended: a permit ended without Release, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(ctx context.Context, name string, why error)
	// Woken: a sleeping waiter woke up to try again, because of a message or because its timer ran out.
	Woken func(ctx context.Context, name string, byMessage bool)
}

// guarded returns o with every function safe to call.
func (o Observer) guarded(s *session.Session) Observer {
	return Observer{
		Acquired:    session.Guard2(s, o.Acquired),
		NotAcquired: session.Guard3(s, o.NotAcquired),
		Waited:      session.Guard2(s, o.Waited),
		Released:    session.Guard3(s, o.Released),
		Renewed:     session.Guard1(s, o.Renewed),
		Ended:       session.Guard1(s, o.Ended),
		Woken:       session.Guard1(s, o.Woken),
	}
}
