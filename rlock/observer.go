package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions that are called when something happens, each with a context and the lock's name. A nil
// function is skipped. They run on the goroutine where it happens, some of them on the watchdog's, so they must return at
// once. A panic in one of them is logged and otherwise ignored.
//
// The context is that of the call in question: it has the caller's span, and may have ended. Renewed and Ended happen while
// nobody calls; they get the values of the acquisition's context, without its end. TakenOver gets a context without values.
//
// Acquiring and Releasing return the context under which their call goes on: its requests, and the functions that are told of it
// later, have its values. So a span that Acquiring begins is the parent of the spans of the requests, and Acquired ends it. It must be
// derived from the context that was given; nil, or a panic, leaves that one. One hold has several acquisitions if it is re-entered,
// or if readers of a process share it: Renewed and Ended are told once, with the values of the first.
type Observer struct {
	// Acquiring is called when an acquisition begins, before anything is sent. It is followed by one call of Acquired or
	// NotAcquired, with the context that it returned. The members of a Multi that one script acquires begin when that has ended;
	// each gets a context of its own.
	Acquiring func(ctx context.Context, name string) context.Context
	// Waiting is called at most once in an acquisition, when it begins to wait: it was refused and may wait, this process holds the
	// lock, or another call of the process is before it. Of a Quorum it is called with the Quorum's name and the caller's context, as
	// Woken is.
	Waiting func(ctx context.Context, name string)
	// Acquired is called when a lock was acquired. waited is how long the call took.
	Acquired func(ctx context.Context, name string, waited time.Duration)
	// NotAcquired is called when an acquisition ended without the lock. err is the call's error.
	NotAcquired func(ctx context.Context, name string, waited time.Duration, err error)
	// Releasing is called when Unlock begins, before anything is sent, and is followed by one call of Released with the context
	// that it returned. acquired has the values that Acquiring returned when this very hold was acquired. Later calls of Unlock
	// have the result of the first, and are not told.
	Releasing func(ctx context.Context, name string, acquired context.Context) context.Context
	// Released is called when Unlock has ended. held is how long the hold lasted, err the call's error.
	Released func(ctx context.Context, name string, held time.Duration, err error)
	// Renewed is called when a renewal was confirmed (nil) or failed (err). A failure is not final: Ended says when a hold
	// is lost.
	Renewed func(ctx context.Context, name string, err error)
	// Ended is called when a hold ended without Unlock, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(ctx context.Context, name string, why error)
	// Woken is called when a sleeping waiter tries again, because of a message or because its timer ran out.
	Woken func(ctx context.Context, name string, byMessage bool)
	// TakenOver is called when this client has removed holds of crashed processes (Options.Liveness) from a lock that it
	// waits for. Another process may acquire the lock then.
	TakenOver func(ctx context.Context, name string, holds int)
}

// guarded returns o with every function safe to call. What goes wrong is also kept for the debug page.
func (o Observer) guarded(s *session.Session) Observer {
	t := s.Troubles()
	o = Observer{
		NotAcquired: func(_ context.Context, name string, _ time.Duration, err error) { t.Add("acquire", name, err) },
		Released:    func(_ context.Context, name string, _ time.Duration, err error) { t.Add("release", name, err) },
		Renewed: func(_ context.Context, name string, err error) {
			if !errors.Is(err, ErrLost) { // which Ended tells
				t.Add("renew", name, err)
			}
		},
		Ended: func(_ context.Context, name string, why error) { t.Add("hold", name, why) },
	}.And(o)
	return Observer{
		Acquiring:   session.Follow0(s, o.Acquiring),
		Waiting:     session.Guard0(s, o.Waiting),
		Acquired:    session.Guard1(s, o.Acquired),
		NotAcquired: session.Guard2(s, o.NotAcquired),
		Releasing:   session.Follow1(s, o.Releasing),
		Released:    session.Guard2(s, o.Released),
		Renewed:     session.Guard1(s, o.Renewed),
		Ended:       session.Guard1(s, o.Ended),
		Woken:       session.Guard1(s, o.Woken),
		TakenOver:   session.Guard1(s, o.TakenOver),
	}
}

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	return Observer{
		Acquiring:   session.Chain0(o.Acquiring, next.Acquiring),
		Waiting:     session.Both0(o.Waiting, next.Waiting),
		Acquired:    session.Both1(o.Acquired, next.Acquired),
		NotAcquired: session.Both2(o.NotAcquired, next.NotAcquired),
		Releasing:   session.Chain1(o.Releasing, next.Releasing),
		Released:    session.Both2(o.Released, next.Released),
		Renewed:     session.Both1(o.Renewed, next.Renewed),
		Ended:       session.Both1(o.Ended, next.Ended),
		Woken:       session.Both1(o.Woken, next.Woken),
		TakenOver:   session.Both1(o.TakenOver, next.TakenOver),
	}
}
