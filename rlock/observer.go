package rlock

import (
	"context"
	"time"
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

// guarded returns o with every function safe to call: never nil, its panics caught.
func (o Observer) guarded(report func(any)) Observer {
	safe := func() {
		if p := recover(); p != nil {
			report(p)
		}
	}
	g := Observer{
		Acquired:    func(context.Context, string, time.Duration) {},
		NotAcquired: func(context.Context, string, time.Duration, error) {},
		Released:    func(context.Context, string, time.Duration, error) {},
		Renewed:     func(context.Context, string, error) {},
		Ended:       func(context.Context, string, error) {},
		Woken:       func(context.Context, string, bool) {},
		TakenOver:   func(context.Context, string, int) {},
	}
	if f := o.Acquired; f != nil {
		g.Acquired = func(ctx context.Context, n string, d time.Duration) { defer safe(); f(ctx, n, d) }
	}
	if f := o.NotAcquired; f != nil {
		g.NotAcquired = func(ctx context.Context, n string, d time.Duration, err error) { defer safe(); f(ctx, n, d, err) }
	}
	if f := o.Released; f != nil {
		g.Released = func(ctx context.Context, n string, d time.Duration, err error) { defer safe(); f(ctx, n, d, err) }
	}
	if f := o.Renewed; f != nil {
		g.Renewed = func(ctx context.Context, n string, err error) { defer safe(); f(ctx, n, err) }
	}
	if f := o.Ended; f != nil {
		g.Ended = func(ctx context.Context, n string, why error) { defer safe(); f(ctx, n, why) }
	}
	if f := o.Woken; f != nil {
		g.Woken = func(ctx context.Context, n string, m bool) { defer safe(); f(ctx, n, m) }
	}
	if f := o.TakenOver; f != nil {
		g.TakenOver = func(ctx context.Context, n string, holds int) { defer safe(); f(ctx, n, holds) }
	}
	return g
}
