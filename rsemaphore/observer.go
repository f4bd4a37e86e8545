package rsemaphore

import "time"

// Observer is a set of functions told of what happens, each with the object's name; nil ones are skipped. They run on
// the goroutine where it happens, some of them the watchdog's: they must return at once. One that panics is logged
// and otherwise ignored.
type Observer struct {
	// Acquired: n permits were acquired after waiting so long.
	Acquired func(name string, n int, waited time.Duration)
	// NotAcquired: an acquisition ended without the permits, for the reason in err.
	NotAcquired func(name string, n int, waited time.Duration, err error)
	// Released: Release ended, with its result, of n permits that were held for so long.
	Released func(name string, n int, held time.Duration, err error)
	// Renewed: a renewal was confirmed (nil) or failed (err). A failure is not final; Ended says when a permit is lost.
	Renewed func(name string, err error)
	// Ended: a permit ended without Release, with ErrLost, ErrMaxHold or ErrClosed.
	Ended func(name string, why error)
	// Woken: a sleeping waiter woke up to try again, because of a message or because its timer ran out.
	Woken func(name string, byMessage bool)
}

// guarded returns o with every function safe to call: never nil, its panics caught.
func (o Observer) guarded(report func(any)) Observer {
	safe := func() {
		if p := recover(); p != nil {
			report(p)
		}
	}
	g := Observer{
		Acquired:    func(string, int, time.Duration) {},
		NotAcquired: func(string, int, time.Duration, error) {},
		Released:    func(string, int, time.Duration, error) {},
		Renewed:     func(string, error) {},
		Ended:       func(string, error) {},
		Woken:       func(string, bool) {},
	}
	if f := o.Acquired; f != nil {
		g.Acquired = func(n string, k int, d time.Duration) { defer safe(); f(n, k, d) }
	}
	if f := o.NotAcquired; f != nil {
		g.NotAcquired = func(n string, k int, d time.Duration, err error) { defer safe(); f(n, k, d, err) }
	}
	if f := o.Released; f != nil {
		g.Released = func(n string, k int, d time.Duration, err error) { defer safe(); f(n, k, d, err) }
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
	return g
}
