package rsemaphore

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions that are called when something happens, each with a context and the object's name. Nil
// functions are skipped. They run on the goroutine where it happens, which may be the watchdog's, so they must return at once.
// A panic in one of them is logged and otherwise ignored.
//
// The context is that of the call: it carries the caller's span, and may have ended. Renewed and Ended happen outside any call:
// their context has the values of the acquisition's context, but not its end.
//
// Acquiring and Releasing return the context under which their call goes on: its requests, and the functions that are told of it
// later, have its values. So a span that Acquiring begins is the parent of the spans of the requests, and Acquired ends it. It must be
// derived from the context that was given; nil, or a panic, leaves that one.
type Observer struct {
	// Acquiring: an acquisition of n permits begins; nothing was sent yet. One call of Acquired or NotAcquired follows, with the
	// context that it returned.
	Acquiring func(ctx context.Context, name string, n int) context.Context
	// Waiting: an acquisition or an Await begins to wait, because it was refused and may wait, or because another call of the
	// process is before it. At most once in each.
	Waiting func(ctx context.Context, name string)
	// Acquired: n permits were acquired after waiting so long.
	Acquired func(ctx context.Context, name string, n int, waited time.Duration)
	// NotAcquired: an acquisition ended without the permits, for the reason in err.
	NotAcquired func(ctx context.Context, name string, n int, waited time.Duration, err error)
	// Waited: an Await ended after so long. A nil err: the latch opened or the barrier tripped. Otherwise err says why it did not.
	Waited func(ctx context.Context, name string, waited time.Duration, err error)
	// Releasing: Release of n permits begins; nothing was sent yet. One call of Released follows, with the context that it returned.
	// acquired has the values that Acquiring returned when these permits were acquired; of a CountingSemaphore it has none, and
	// Released follows unless there was nothing to release. Later calls of Release have the result of the first, and are not told.
	Releasing func(ctx context.Context, name string, n int, acquired context.Context) context.Context
	// Released: Release of n permits, held for so long, ended with err. held is negative for a CountingSemaphore, which knows no
	// holders.
	Released func(ctx context.Context, name string, n int, held time.Duration, err error)
	// Renewed: the lease of a permit or of a barrier's party was renewed (a nil err), or the renewal failed (err). A failure is
	// not final: Ended says when a permit is lost, Waited when a party is.
	Renewed func(ctx context.Context, name string, err error)
	// Ended: a permit ended without Release, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(ctx context.Context, name string, why error)
	// Woken: a sleeping waiter woke up to try again, because of a message or because its timer ran out.
	Woken func(ctx context.Context, name string, byMessage bool)
}

// guarded returns o with every function safe to call. What goes wrong is also kept for the debug page.
func (o Observer) guarded(s *session.Session) Observer {
	t := s.Troubles()
	o = Observer{
		NotAcquired: func(_ context.Context, name string, _ int, _ time.Duration, err error) { t.Add("acquire", name, err) },
		Waited:      func(_ context.Context, name string, _ time.Duration, err error) { t.Add("await", name, err) },
		Released:    func(_ context.Context, name string, _ int, _ time.Duration, err error) { t.Add("release", name, err) },
		Renewed: func(_ context.Context, name string, err error) {
			if !errors.Is(err, ErrLost) { // which Ended tells
				t.Add("renew", name, err)
			}
		},
		Ended: func(_ context.Context, name string, why error) { t.Add("permit", name, why) },
	}.And(o)
	return Observer{
		Acquiring:   session.Follow1(s, o.Acquiring),
		Waiting:     session.Guard0(s, o.Waiting),
		Acquired:    session.Guard2(s, o.Acquired),
		NotAcquired: session.Guard3(s, o.NotAcquired),
		Waited:      session.Guard2(s, o.Waited),
		Releasing:   session.Follow2(s, o.Releasing),
		Released:    session.Guard3(s, o.Released),
		Renewed:     session.Guard1(s, o.Renewed),
		Ended:       session.Guard1(s, o.Ended),
		Woken:       session.Guard1(s, o.Woken),
	}
}

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	return Observer{
		Acquiring:   session.Chain1(o.Acquiring, next.Acquiring),
		Waiting:     session.Both0(o.Waiting, next.Waiting),
		Acquired:    session.Both2(o.Acquired, next.Acquired),
		NotAcquired: session.Both3(o.NotAcquired, next.NotAcquired),
		Waited:      session.Both2(o.Waited, next.Waited),
		Releasing:   session.Chain2(o.Releasing, next.Releasing),
		Released:    session.Both3(o.Released, next.Released),
		Renewed:     session.Both1(o.Renewed, next.Renewed),
		Ended:       session.Both1(o.Ended, next.Ended),
		Woken:       session.Both1(o.Woken, next.Woken),
	}
}
