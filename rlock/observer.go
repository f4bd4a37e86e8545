package rlock

import "time"

// Observer is a set of functions told of what happens, each with the lock's name; nil ones are skipped. They run on
// the goroutine where it happens, some of them the watchdog's: they must return at once. One that panics is logged
// and otherwise ignored.
type Observer struct {
	// Acquired: a lock was acquired after waiting so long.
	Acquired func(name string, waited time.Duration)
	// NotAcquired: an acquisition ended without the lock, for the reason in err.
	NotAcquired func(name string, waited time.Duration, err error)
	// Released: Unlock ended, with its result, of a hold that lasted so long.
	Released func(name string, held time.Duration, err error)
	// Renewed: a renewal was confirmed (nil) or failed (err). A failure is not final; Ended says when a hold is lost.
	Renewed func(name string, err error)
	// Ended: a hold ended without Unlock, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(name string, why error)
	// Woken: a sleeping waiter woke up to try again, because of a message or because its timer ran out.
	Woken func(name string, byMessage bool)
	// TakenOver: this client removed so many holds of processes that are gone (Options.Liveness) from a lock that it waits
	// for. Who acquires it then is another matter.
	TakenOver func(name string, holds int)
}

// guarded returns o with every function safe to call: never nil, its panics caught.
func (o Observer) guarded(report func(any)) Observer {
	safe := func() {
		if p := recover(); p != nil {
			report(p)
		}
	}
	g := Observer{
		Acquired:    func(string, time.Duration) {},
		NotAcquired: func(string, time.Duration, error) {},
		Released:    func(string, time.Duration, error) {},
		Renewed:     func(string, error) {},
		Ended:       func(string, error) {},
		Woken:       func(string, bool) {},
		TakenOver:   func(string, int) {},
	}
	if f := o.Acquired; f != nil {
		g.Acquired = func(n string, d time.Duration) { defer safe(); f(n, d) }
	}
	if f := o.NotAcquired; f != nil {
		g.NotAcquired = func(n string, d time.Duration, err error) { defer safe(); f(n, d, err) }
	}
	if f := o.Released; f != nil {
		g.Released = func(n string, d time.Duration, err error) { defer safe(); f(n, d, err) }
	}
	if f := o.Renewed; f != nil {
		g.Renewed = func(n string, err error) { defer safe(); f(n, err) }
	}
	if f := o.Ended; f != nil {
		g.Ended = func(n string, why error) { defer safe(); f(n, why) }
	}
	if f := o.Woken; f != nil {
		g.Woken = func(n string, m bool) { defer safe(); f(n, m) }
	}
	if f := o.TakenOver; f != nil {
		g.TakenOver = func(n string, holds int) { defer safe(); f(n, holds) }
	}
	return g
}
