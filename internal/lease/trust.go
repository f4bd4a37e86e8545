package lease

import (
	"time"
)

// Confirmed records that a request sent at sent left the lease with at least length on the server. It can only move the
// deadline forward. It reports false if the lease is over.
func (e *Engine) Confirmed(lease *Lease, sent time.Time, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease.state != registered {
		return false
	}
	e.extendTrust(lease, sent, length)
	if e.at(sent).Before(lease.shortenedAt) {
		lease.checkAt = e.now() // see applyServerLease
	}
	e.rescheduled(lease)
	return true
}

// extendTrust moves the deadline forward to the trust in a request that was sent at sent, and left the lease with
// length.
func (e *Engine) extendTrust(lease *Lease, sent time.Time, length time.Duration) {
	trustedUntil := e.at(sent).Add(length - lease.margin(length))
	lease.confirmedAt = e.now()
	lease.deadline = max(lease.deadline, trustedUntil)
	if e.at(sent).Before(e.wokeAt) {
		trustedUntil = trustedUntil.Add(-e.sleptFor)
	}
	lease.certainUntil = max(lease.certainUntil, trustedUntil)
}

// applyServerLease records how long the lease has left on the server, to less than a millisecond; 0: it has no end.
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
func (e *Engine) applyServerLease(lease *Lease, sent time.Time, left time.Duration, now instant) {
	if e.at(sent).Before(e.wokeAt) {
		return
	}
	if left > 0 {
		safe := e.at(sent).Add(left - lease.margin(left))
		switch shortened := e.at(sent).Add(left).Before(lease.certainUntil); {
		case shortened && lease.confirmedAt.After(e.at(sent)):
			lease.checkAt = now
			return
		case shortened:
			lease.deadline, lease.shortenedAt = safe, now
			if now.Add(left).Before(lease.certainUntil) { // more is missing than the time that the reply took
				lease.renewAt = now
			}
		default:
			lease.deadline = max(lease.certainUntil, min(lease.deadline, safe))
		}
	}
	lease.certainUntil = lease.deadline
}

// Trusted reports whether heartbeats allow to add a lease that may exist since possibleSince.
func (e *Engine) Trusted(key string, possibleSince time.Time) bool {
	if e.heartbeats == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	lease := Lease{possibleSince: e.at(possibleSince), group: uint8(SlotGroup(e.cluster, key))}
	return e.now().Before(e.heartbeats.trustedUntil(&lease))
}

// Lasting reports whether the lease is registered, and at least a quarter of the lease on the server may still be
// trusted: enough for another caller to begin. MaxHold does not count, because each caller has its own.
func (e *Engine) Lasting(lease *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return lease.state == registered && e.safeUntil(lease).Sub(e.now()) >= lease.serverLength()/4
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
	return e.time(until)
}

// safeUntil is until without MaxHold.
func (e *Engine) safeUntil(lease *Lease) instant {
	safe := lease.certainUntil
	if e.heartbeats != nil {
		safe = min(safe, e.heartbeats.safeUntil(lease))
	}
	_, _, ahead := e.clocks()
	return safe.Add(-ahead)
}

// clocks reads both clocks, and returns the advance of the wall clock over the monotonic clock since the last read; 0
// if it is too small to mean a sleep. The wall clock is never used as a time here: it only shows that more time has
// passed than on the monotonic clock. Called with mu held.
func (e *Engine) clocks() (wall, mono time.Time, ahead time.Duration) {
	wall, mono = e.wallClock(), time.Now()
	passed := mono.Sub(e.lastMono)
	ahead = wall.Round(0).Sub(e.lastWall.Round(0)) - passed // Round(0) drops the monotonic reading
	if ahead <= wallJump+passed/wallSlew {
		ahead = 0
	}
	return wall, mono, ahead
}
