package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions told of what happens, each with a context and the lock's name; nil ones are skipped. They
// run on the goroutine where it happens, some of them the watchdog's: they must return at once. One that panics is logged
// and otherwise ignored.
//
// The context is that of the call that is spoken of: it carries the caller's span, and may have ended. What happens while
// nobody calls, Renewed and Ended, comes with the values of the context of the acquisition, without its end, and TakenOver
// with a context without values.
type Observer struct {
	// Acquired: a lock was acquired after waiting so long.
	Acquired func(ctx context.Context, name string, waited time.Duration)
	// NotAcquired: an acquisition ended without the lock, for the reason in err.
	NotAcquired func(ctx context.Context, name string, waited time.Duration, err error)
	// Released: Unlock ended, with its result, of a hold that lasted so long.
	Released func(ctx context.Context, name string, held time.Duration, err error)
	// Renewed: a renewal was confirmed (nil) or failed (err). A failure is not final; Ended says when a hold is lost.
	Renewed func(ctx context.Context, name string, err error)
	// Ended: a hold ended without Unlock, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(ctx context.Context, name string, why error)
	// Woken: a sleeping waiter woke up to try again, because of a message or because its timer ran out.
	Woken func(ctx context.Context, name string, byMessage bool)
	// TakenOver: this client removed so many holds of processes that are gone (Options.Liveness) from a lock that it waits
	// for. Who acquires it then is another matter.
	TakenOver func(ctx context.Context, name string, holds int)
}

// guarded returns o with every function safe to call.
func (o Observer) guarded(s *session.Session) Observer {
	return Observer{
		Acquired:    session.Guard1(s, o.Acquired),
		NotAcquired: session.Guard2(s, o.NotAcquired),
		Released:    session.Guard2(s, o.Released),
		Renewed:     session.Guard1(s, o.Renewed),
		Ended:       session.Guard1(s, o.Ended),
		Woken:       session.Guard1(s, o.Woken),
		TakenOver:   session.Guard1(s, o.TakenOver),
	}
}
