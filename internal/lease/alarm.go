package lease

// alarm wakes the goroutine of an engine. Guarded by Engine.mu. No alarm wakes nobody.
type alarm struct {
	ring        chan struct{} // of one place
	at          instant       // when the goroutine looks next; zero while it is looking
	requestedAt instant       // the latest ring since it looked; zero: none
}

// by makes the goroutine look again at latest.
//
// The wake-up outlives the lease for which it was set, even if the lease is removed before the goroutine looks.
// Otherwise lock and unlock in a loop would wake the goroutine every time: it finds nothing, goes to sleep for an hour,
// and the next lease has to wake it again. So they disturb it every trackAfter or so
// (TestWatchdog_AddAndRemoveInALoop_StaysAsleep).
func (a *alarm) by(latest instant) {
	if a == nil || a.at.IsZero() || !latest.Before(a.at) {
		return
	}
	a.at, a.requestedAt = 0, latest
	select {
	case a.ring <- struct{}{}:
	default:
	}
}

// set is called by the goroutine, which has looked at now and wants to look next at next. It returns when it has to.
func (a *alarm) set(now, next instant) instant {
	if a.requestedAt.After(now) {
		next = min(next, a.requestedAt)
	}
	a.at, a.requestedAt = next, 0
	return next
}
