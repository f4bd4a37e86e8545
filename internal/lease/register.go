package lease

import (
	"container/heap"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Add registers a lease. It was granted by a request sent at sent, or by an earlier request without a reply, sent not
// before asked. maxHold 0: no limit. Add reports false, and registers nothing, if the lease is over already. It is
// called before the acquisition returns, so that no hold is ever without its watchdog.
func (e *Engine) Add(lease *Lease, asked, sent time.Time, length time.Duration, auto bool, maxHold time.Duration) bool {
	lease.schedule.start, lease.trust.possibleSince = e.clock.at(sent), e.clock.at(asked)
	return e.add(lease, sent, length, length, auto, maxHold)
}

// AddHanded is Add for a lease that was handed over: granted at any time from sent to now, with the length written on
// the server. After a third of written, or soon (see Lease.RaiseSoon), it is renewed once, to its full length, also if
// it is not auto.
func (e *Engine) AddHanded(lease *Lease, sent time.Time, written, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	return e.AddShort(lease, sent, sent, written, length, auto, maxHold)
}

// AddShort is AddHanded for a lease that may have been granted by an earlier request, not before asked.
func (e *Engine) AddShort(lease *Lease, asked, sent time.Time, written, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	// The deadline counts from sent, which may be long ago; everything else counts from now.
	lease.schedule.start, lease.trust.possibleSince = e.clock.now(), e.clock.at(asked)
	if written < length {
		lease.schedule.beginShort(e.clock.at(sent), written)
	}
	return e.add(lease, sent, written, length, auto, maxHold)
}

func (e *Engine) add(lease *Lease, sent time.Time, written, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	now := e.clock.now()
	lease.schedule.begin(now, length, auto)
	lease.group = noGroup
	if e.heartbeats.appliesTo(length, auto) {
		lease.group = uint8(e.heartbeats.groupOf(lease.Key))
	}
	if maxHold > 0 {
		lease.maxAt = lease.schedule.start.Add(maxHold)
	}
	if e.tracker.tracks() && !lease.Untracked {
		lease.schedule.checkAt = lease.schedule.start.Add(trackAfter)
	}
	at := e.entry(lease.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wakeAt == forever {
		e.clock.begin()
	}
	e.extendTrust(lease, sent, written)
	if e.isOver(lease, now) {
		return false
	}
	lease.state = registered
	lease.sibling = e.entries[at]
	e.entries[at] = lease
	heap.Push(&e.leases, lease)
	e.wakeBy(min(lease.nextEvent(), now.Add(clockCheckInterval), e.heartbeats.addLease(lease, now)))
	return true
}

// minRaisedLease is the shortest lease that is raised after a turn has begun, because a shorter lease leaves too little
// time for the raise.
const minRaisedLease = time.Second

// Retake makes the lease another caller's, as if it was granted just now for length. ctx is the context of that caller,
// and auto and maxHold are as in Add. It reports false, and changes nothing, if that would need a call first:
//
//   - The lease is over, or less than a quarter of it is trusted.
//   - The server may have the lease for longer than length, because of a renewal under way or without a reply, or
//     because the last caller's lease is longer. If the process died, others would wait for that.
//   - The caller's lease is not renewed, and is too short to be raised in time.
//   - Only one of the two leases depends on heartbeats.
//
// If both callers' leases are renewed and equally long, nothing else changes. Otherwise the lease is raised to the new
// length if it is shorter: soon (see raiseInterval) for a lease that is not renewed, so that most holds end before
// that.
//
//	turn 1, 60 s     turn 2, 5 s, without these checks      server
//	renews  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ raised to 60 s
//	                 the process dies                       held for 60 s instead of 5 s
func (e *Engine) Retake(ctx context.Context, lease *Lease, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	left := e.safeUntil(lease).Sub(now)
	if lease.state != registered || left < lease.schedule.serverLength()/4 {
		return false
	}
	if sameTerms := auto && lease.schedule.isRenewed() && lease.schedule.length == length; !sameTerms {
		if !e.canRetake(lease, now, left, length, auto) {
			return false
		}
		lease.schedule.retake(now, lease.trust.deadline, length, auto)
		lease.Longest = max(lease.Longest, length)
	}
	lease.Ctx = ctx
	if maxHold > 0 {
		lease.maxAt = now.Add(maxHold)
	}
	e.rescheduled(lease)
	return true
}

// canRetake reports whether a caller with other terms may retake the lease. Called with mu held.
func (e *Engine) canRetake(lease *Lease, now instant, left, length time.Duration, auto bool) bool {
	switch {
	case lease.schedule.inFlight,
		lease.serverUntil().After(now.Add(length)),
		lease.raiseUnanswered && lease.Longest > length:
		return false
	case !auto && (length < minRaisedLease || left < lease.schedule.serverLength()/2):
		return false
	}
	return e.heartbeats.appliesTo(length, auto) == (lease.group != noGroup)
}

// Auto adds a handle that needs renewals, of at least the given length. It reports false if the lease is over.
func (e *Engine) Auto(lease *Lease, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease.state != registered {
		return false
	}
	lease.schedule.addHandle(e.clock.now(), length)
	e.rescheduled(lease)
	return true
}

// Manual undoes one Auto, or the auto of Add. After the last the lease runs out.
func (e *Engine) Manual(lease *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease.state == registered {
		lease.schedule.autoHandles--
		e.rescheduled(lease)
	}
}

// Remove removes the lease before its release is sent. It returns the reason if the lease is over, as Over does; nil:
// it was held until now.
func (e *Engine) Remove(lease *Lease) (reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if reason = e.endReason(lease); lease.state == registered {
		e.remove(lease)
	}
	return reason
}

// Over returns the reason if the lease is over, and nil while it is registered and may be relied on. With
// errs.ErrMaxHold the lease on the server may last, so that a release can still be confirmed. With errs.ErrLost the
// lease may be another owner's, or was removed before.
//
// The handle may not know of it yet:
//
//	watchdog: removes the lease, because MaxHold is over
//	                                                  release: calls Over, and goes on as after MaxHold
//	watchdog: calls Ended
//
// (TestRelease_BetweenMaxHoldAndItsNews_IsNoLoss in internal/hold)
func (e *Engine) Over(lease *Lease) (reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endReason(lease)
}

// endReason is Over, called with mu held.
func (e *Engine) endReason(lease *Lease) error {
	now := e.clock.now()
	switch {
	case lease.state == endedByMaxHold:
		return errs.ErrMaxHold
	case lease.state != registered, e.isOver(lease, now):
		return errs.ErrLost
	case !lease.maxAt.IsZero() && !now.Before(lease.maxAt):
		return errs.ErrMaxHold
	}
	return nil
}

// Lost ends the lease with reason: errs.ErrLost or errs.ErrOverwritten, because the server said so, or errs.ErrClosed.
// It reports false if the lease was over before.
func (e *Engine) Lost(lease *Lease, reason error) bool {
	e.mu.Lock()
	live := lease.state == registered
	if live {
		e.remove(lease)
	}
	e.mu.Unlock()
	if live {
		lease.Of.Ended(reason)
	}
	return live
}

func (e *Engine) remove(lease *Lease) {
	lease.state = ended
	heap.Remove(&e.leases, int(lease.index))
	if lease.group != noGroup {
		e.heartbeats.groups[lease.group].leases--
	}
	at := e.entry(lease.Key)
	switch first := e.entries[at]; {
	case first != lease:
		for first.sibling != lease {
			first = first.sibling
		}
		first.sibling = lease.sibling
	case lease.sibling != nil:
		e.entries[at] = lease.sibling
	default:
		delete(e.entries, at) // a name that is not held takes no memory
	}
	lease.sibling = nil
}

// Longest raises the lease's Longest to at least length, and returns for how long from now the server may have the
// lease.
func (e *Engine) Longest(lease *Lease, length time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	lease.Longest = max(lease.Longest, length)
	return lease.Longest
}

// EndAll calls Ended of all registered leases, and goes on renewing each lease until it is removed or the engine stops.
func (e *Engine) EndAll(reason error) {
	for _, lease := range e.all() {
		lease.Of.Ended(reason)
	}
}
