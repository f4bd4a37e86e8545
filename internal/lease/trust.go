package lease

import (
	"time"
)

// trust is for how long a lease may be relied on, as the server's replies say. Guarded by Engine.mu.
type trust struct {
	deadline     instant // acting is safe until then, as far as the lease goes
	certainUntil instant // the same, even if the machine was asleep; never after deadline
	confirmedAt  instant // when the last confirmation was recorded
	shortenedAt  instant // when the last look was recorded that found less than was confirmed
	// possibleSince is before the first request was sent that may have been granted. Heartbeats count from then.
	possibleSince instant
}

// extend records at now that the server has confirmed the lease, which is safe until then. The machine may have slept
// for slept since the request was sent.
func (t *trust) extend(now, until instant, slept time.Duration) {
	t.confirmedAt = now
	t.deadline = max(t.deadline, until)
	t.certainUntil = max(t.certainUntil, until.Add(-slept))
}

// sleep records that the machine may have slept, so that the lease may end earlier than at the deadline.
func (t *trust) sleep(slept time.Duration) { t.certainUntil = t.certainUntil.Add(-slept) }

// isUncertain reports whether the lease may end before the deadline, because the machine may have been asleep. The
// server has not answered since.
func (t *trust) isUncertain() bool { return t.certainUntil.Before(t.deadline) }

// shorten records at now that the server has less of the lease than it has confirmed: it is safe until then.
func (t *trust) shorten(now, until instant) {
	t.deadline, t.certainUntil, t.shortenedAt = until, until, now
}

// settle ends the uncertainty: the server has the lease until then at least.
func (t *trust) settle(until instant) {
	t.deadline = max(t.certainUntil, min(t.deadline, until))
	t.certainUntil = t.deadline
}

// Confirmed records that a request sent at sent left the lease with at least length on the server. It can only move the
// deadline forward. It reports false if the lease is over.
func (e *Engine) Confirmed(lease *Lease, sent time.Time, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease.state != registered {
		return false
	}
	e.extendTrust(lease, sent, length)
	if e.clock.at(sent).Before(lease.trust.shortenedAt) {
		lease.schedule.checkAt = e.clock.now() // see applyServerLease
	}
	e.rescheduled(lease)
	return true
}

// extendTrust moves the deadline forward to the trust in a request that was sent at sent, and left the lease with
// length.
func (e *Engine) extendTrust(lease *Lease, sent time.Time, length time.Duration) {
	sentAt := e.clock.at(sent)
	lease.trust.extend(e.clock.now(), sentAt.Add(length-lease.margin(length)), e.clock.sleptSince(sentAt))
}

// applyServerLease records the reply of a look that was sent at sent: how long the lease has left on the server, to
// less than a millisecond; 0: it has no end.
//
// The server may have less than it confirmed, because another program has shortened the lease (PEXPIRE). Then the
// deadline moves back, and a lease that is renewed is renewed now. But the reply may be older than a confirmation:
//
//	look: sent, reads 5 s left      Extend or re-entry: raises to 30 s, confirmed
//	look: answered
//
// so the lease is looked at again. It is also looked at again when an older reply comes after the look:
//
//	Extend: sent, raises to 30 s    another shortens to 5 s      look: reads 5 s, answered
//	Extend: answered
//
// (TestLook_BeforeAConfirmation_TakesNothingOffIt, TestConfirmation_BeforeALook_HidesNothingItFound)
func (l *Lease) applyServerLease(sent instant, left time.Duration, now instant) {
	if left == 0 {
		l.trust.certainUntil = l.trust.deadline
		return
	}
	serverEnd, safe := sent.Add(left), sent.Add(left-l.margin(left))
	switch shortened := serverEnd.Before(l.trust.certainUntil); {
	case shortened && l.trust.confirmedAt.After(sent):
		l.schedule.checkAt = now
	case shortened:
		if now.Add(left).Before(l.trust.certainUntil) { // more is missing than the time that the reply took
			l.schedule.renewAt = now
		}
		l.trust.shorten(now, safe)
	default:
		l.trust.settle(safe)
	}
}

// Trusted reports whether heartbeats allow to add a lease that may exist since possibleSince.
func (e *Engine) Trusted(key string, possibleSince time.Time) bool {
	if e.heartbeats.Trust == 0 {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	lease := Lease{trust: trust{possibleSince: e.clock.at(possibleSince)}, group: uint8(e.heartbeats.groupOf(key))}
	return e.clock.now().Before(e.heartbeats.trustedUntil(&lease))
}

// Lasting reports whether the lease is registered, and at least a quarter of the lease on the server may still be
// trusted: enough for another caller to begin. MaxHold does not count, because each caller has its own.
func (e *Engine) Lasting(lease *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return lease.state == registered && e.safeUntil(lease).Sub(e.clock.now()) >= lease.schedule.serverLength()/4
}

// Until returns the earliest of the lease's deadline, the end of MaxHold and the end of the trust in heartbeats. Each
// is earlier by the time that the machine may have slept since the server last answered.
func (e *Engine) Until(lease *Lease) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.until(lease)
}

// until is Until, called with mu held.
func (e *Engine) until(lease *Lease) time.Time {
	until := e.safeUntil(lease)
	if !lease.maxAt.IsZero() {
		until = min(until, lease.maxAt)
	}
	return e.clock.time(until)
}

// safeUntil is until without MaxHold.
func (e *Engine) safeUntil(lease *Lease) instant {
	safe := min(lease.trust.certainUntil, e.heartbeats.safeUntil(lease))
	_, _, ahead := e.clock.compare()
	return safe.Add(-ahead)
}
