package lease

import (
	"container/heap"
	"time"
)

// Confirmed records that a request sent at sent left l with at least length on the server. It can only move the
// deadline forward. It reports false if l is over.
func (e *Engine) Confirmed(l *Lease, sent time.Time, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state != registered {
		return false
	}
	e.confirm(l, sent, length)
	heap.Fix(&e.due, int(l.index))
	e.wakeBy(l.next)
	return true
}

func (e *Engine) confirm(l *Lease, sent time.Time, length time.Duration) {
	e.trust(l, sent, length)
	if e.at(sent).Before(l.looked) {
		l.checkAt = e.now() // see applyServerLease
	}
	l.schedule()
}

// trust moves the deadline to what a request sent at sent, which left l with length, is good for, if that is later.
func (e *Engine) trust(l *Lease, sent time.Time, length time.Duration) {
	d := e.at(sent).Add(length - l.margin(length))
	l.confirmedAt = e.now()
	l.deadline = max(l.deadline, d)
	if e.at(sent).Before(e.woke) {
		d = d.Add(-e.slept)
	}
	l.sure = max(l.sure, d)
}

// applyServerLease takes in how long l has left by the server, to less than a millisecond; 0: it has no end.
//
// The server may have less than it confirmed, because another program has shortened the lease (PEXPIRE). Then the
// deadline is earlier, and a lease that is renewed is renewed now. But the answer may be older than a confirmation:
//
//	look: sent, reads 5 s left      Extend or re-entry: raises to 30 s, confirmed
//	look: answered
//
// so the lease is looked at again. It is also looked at again when an older answer comes after the look:
//
//	Extend: sent, raises to 30 s    another shortens to 5 s      look: reads 5 s, answered
//	Extend: answered
//
// (TestLook_BeforeAConfirmation_TakesNothingOffIt, TestConfirmation_BeforeALook_HidesNothingItFound)
func (e *Engine) applyServerLease(l *Lease, sent time.Time, left time.Duration, now instant) {
	if e.at(sent).Before(e.woke) {
		return
	}
	if left > 0 {
		safe := e.at(sent).Add(left - l.margin(left))
		switch shortened := e.at(sent).Add(left).Before(l.sure); {
		case shortened && l.confirmedAt.After(e.at(sent)):
			l.checkAt = now
			return
		case shortened:
			l.deadline, l.looked = safe, now
			if now.Add(left).Before(l.sure) { // and this is not only the time that the answer took
				l.renewAt = now
			}
		default:
			l.deadline = max(l.sure, min(l.deadline, safe))
		}
	}
	l.sure = l.deadline
}

// Trusted reports whether heartbeats allow that a lease which may exist since asked is still added.
func (e *Engine) Trusted(key string, asked time.Time) bool {
	if e.heart == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now().Before(e.heart.trusted(&Lease{keeping: keeping{trusted: trusted{asked: e.at(asked)},
		renewals: renewals{group: uint8(SlotGroup(e.cluster, key))}}}))
}

// Lasting reports whether l is registered, and a quarter at least of the lease that the server has is yet to come, as
// far as it may be trusted: enough for another caller to begin. MaxHold is each caller's own.
func (e *Engine) Lasting(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return l.state == registered && e.safe(l).Sub(e.now()) >= l.term()/4
}

// Until returns the earliest of l's deadline, the end of MaxHold and the end of its trust in heartbeats, each earlier
// by what the machine may have slept since the server last answered.
func (e *Engine) Until(l *Lease) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.until(l)
}

// until is Until, called with mu held.
func (e *Engine) until(l *Lease) time.Time {
	until := e.safe(l)
	if !l.maxAt.IsZero() {
		until = min(until, l.maxAt)
	}
	return e.time(until)
}

// safe is until without MaxHold.
func (e *Engine) safe(l *Lease) instant {
	safe := l.sure
	if e.heart != nil {
		safe = min(safe, e.heart.until(l))
	}
	_, _, ahead := e.clocks()
	return safe.Add(-ahead)
}

// clocks reads both clocks, and returns how much further the wall clock has run than the other since the last note, 0
// if that is too little to mean a sleep. The wall clock is never used as a time here: it only shows that more time has
// passed than the monotonic clock saw. Called with mu held.
func (e *Engine) clocks() (wall, mono time.Time, ahead time.Duration) {
	wall, mono = e.wall(), time.Now()
	passed := mono.Sub(e.lastMono)
	ahead = wall.Round(0).Sub(e.lastWall.Round(0)) - passed // Round(0) drops the monotonic reading
	if ahead <= wallJump+passed/wallSlew {
		ahead = 0
	}
	return wall, mono, ahead
}
