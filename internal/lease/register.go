package lease

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Add registers l, which was granted by a request sent at sent, or by an earlier one, not before asked, whose answer
// was not seen. maxHold 0: there is no limit. It reports false, and registers nothing, if l is over already. It is
// called before the acquisition returns, so that no hold is ever without its watchdog.
func (e *Engine) Add(l *Lease, asked, sent time.Time, length time.Duration, auto bool, maxHold time.Duration) bool {
	l.start, l.asked = e.at(sent), e.at(asked)
	return e.add(l, sent, length, length, auto, maxHold)
}

// raiseSoon is the time between the raises of leases with Soon: each is raised in the second from its grant on, so that
// what was handed over at about the same time is raised in one call. A hold that lasts for less than raiseSoon costs no
// call, one that lasts for twice as long a part in one.
const raiseSoon = 5 * time.Millisecond

// AddHanded is Add for a lease that was handed over: granted at any time from sent to now, with a length of written on
// the server. After a third of that, or at once with Soon, it is renewed once, to its full length, also if it is not
// auto.
func (e *Engine) AddHanded(l *Lease, sent time.Time, written, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	return e.AddShort(l, sent, sent, written, length, auto, maxHold)
}

// AddShort is AddHanded for a lease that may have been granted by an earlier request, not before asked.
func (e *Engine) AddShort(l *Lease, asked, sent time.Time, written, length time.Duration, auto bool,
	maxHold time.Duration) bool {
	// The deadline counts from sent, which may be long ago; everything else counts from now.
	l.start, l.asked = e.now(), e.at(asked)
	if written < length {
		l.short, l.renewAt = written, e.at(sent).Add(written/3)
		if l.Soon {
			l.renewAt = min(l.renewAt, raiseAt(l.start))
		}
	}
	return e.add(l, sent, written, length, auto, maxHold)
}

func (e *Engine) add(l *Lease, sent time.Time, written, length time.Duration, auto bool, maxHold time.Duration) bool {
	now := e.now()
	l.length = length
	if e.heart != nil {
		l.group = beatless
		if e.heart.carries(length, auto) {
			l.group = uint8(SlotGroup(e.cluster, l.Key))
		}
	}
	if maxHold > 0 {
		l.maxAt = l.start.Add(maxHold)
	}
	if auto {
		l.auto = 1
	}
	if l.short == 0 {
		l.plan(now)
	}
	if e.tracks() && !l.Untracked {
		l.checkAt = l.start.Add(trackAfter)
	}
	at := e.entry(l.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start()
	e.trust(l, sent, written)
	if e.over(l, now) {
		return false
	}
	l.state = registered
	l.schedule()
	l.sibling = e.entries[at]
	e.entries[at] = l
	heap.Push(&e.due, l)
	next := l.next
	if e.heart != nil {
		next = min(next, e.heart.count(l, now))
	}
	e.wakeBy(next)
	return true
}

// soonest is the shortest lease that is raised after a turn has begun: a shorter one leaves too little time for that.
const soonest = time.Second

// Retake has another caller have l from now on, as if it was granted just now for length: ctx is that caller's, and
// auto and maxHold are as of Add. It reports false, and changes nothing, if that cannot be said of l without a call:
//
//   - l is over, or less than a quarter of the lease is trusted;
//   - the server may have l for longer than the caller was promised, because of a renewal under way or one that was not
//     answered, or because the last caller's lease is longer. If the process died, others would wait for that.
//   - the caller's lease is not renewed, and is too short to be raised in time;
//   - heartbeats have a say in one of the two leases only.
//
// A caller like the last one, whose lease is renewed, has l as it is. Otherwise the lease is raised to the new length
// if it is shorter: soon (see raiseSoon) for a caller whose lease is not renewed, so that most holds end before that.
//
//	turn 1, 60 s     turn 2, 5 s: did Retake not look       server
//	renews  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ raised to 60 s
//	                 the process dies                       held for 60 s, and 5 s were promised
func (e *Engine) Retake(ctx context.Context, l *Lease, length time.Duration, auto bool, maxHold time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	left := e.safe(l).Sub(now)
	if l.state != registered || left < l.term()/4 {
		return false
	}
	if like := auto && l.auto > 0 && l.length == length; !like {
		if !e.canRetake(l, now, left, length, auto) {
			return false
		}
		e.retake(l, now, length, auto)
	}
	l.Ctx = ctx
	if maxHold > 0 {
		l.maxAt = now.Add(maxHold)
	}
	l.schedule()
	heap.Fix(&e.due, int(l.index))
	e.wakeBy(l.next)
	return true
}

// canRetake is called with mu held.
func (e *Engine) canRetake(l *Lease, now instant, left, length time.Duration, auto bool) bool {
	switch {
	case l.inFlight, l.latest().After(now.Add(length)), l.unanswered && l.Longest > length:
		return false
	case !auto && (length < soonest || left < l.term()/2):
		return false
	}
	return e.heart == nil || e.heart.carries(length, auto) == (l.group != beatless)
}

// retake is called with mu held.
func (e *Engine) retake(l *Lease, now instant, length time.Duration, auto bool) {
	l.short = l.term() // also if it is as long: it began earlier
	l.start, l.length, l.auto, l.Soon, l.retrying = now, length, 0, !auto, false
	l.Longest = max(l.Longest, length)
	if auto {
		l.auto = 1
		l.renewAt = max(now, l.deadline.Add(-2*l.short/3))
	} else {
		l.renewAt = raiseAt(now)
	}
}

// raiseAt is when a lease with Soon that begins at now is raised.
func raiseAt(now instant) instant { return (now/instant(raiseSoon) + 2) * instant(raiseSoon) }

// Auto adds a handle that wants l renewed, with at least the given length. It reports false if l is over.
func (e *Engine) Auto(l *Lease, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state != registered {
		return false
	}
	// While the renewal after a hand-over is due, only l.length says to what the lease is raised, and renewAt when: a
	// re-entry neither puts it off nor changes the length, unless its own lease is longer
	// (TestReentry_BeforeTheRaise_KeepsTheHoldsLease).
	if length > l.length || l.auto == 0 && l.short == 0 {
		l.length = length
	}
	l.auto++
	if l.short == 0 {
		l.renewAt = 0
		l.plan(e.now())
	}
	l.schedule()
	heap.Fix(&e.due, int(l.index))
	e.wakeBy(l.next)
	return true
}

// Manual takes back one Auto, or the one that Add was given: after the last, l's lease runs out.
func (e *Engine) Manual(l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state == registered {
		l.auto--
		l.schedule()
		heap.Fix(&e.due, int(l.index))
	}
}

// Remove takes l out, before its release is sent. It returns why l is over, as Over does; nil: l was held until now.
func (e *Engine) Remove(l *Lease) (why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if why = e.why(l); l.state == registered {
		e.remove(l)
	}
	return why
}

// Over returns why l is over, and nil while it is registered and may be relied on. errs.ErrMaxHold: the lease on the
// server may last, so that a release can still be confirmed. errs.ErrLost: l may be another's, or was removed
// before.
//
// The handle may not know of it yet:
//
//	watchdog: takes l out, because MaxHold is over
//	                                                  release: asks here, and goes on as for a hold that MaxHold ended
//	watchdog: calls Ended
//
// (TestRelease_BetweenMaxHoldAndItsNews_IsNoLoss in internal/session)
func (e *Engine) Over(l *Lease) (why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why(l)
}

// why is Over, called with mu held.
func (e *Engine) why(l *Lease) error {
	now := e.now()
	switch {
	case l.state == exceeded:
		return errs.ErrMaxHold
	case l.state != registered, e.over(l, now):
		return errs.ErrLost
	case !l.maxAt.IsZero() && !now.Before(l.maxAt):
		return errs.ErrMaxHold
	}
	return nil
}

// Lost ends l with why, errs.ErrLost or errs.ErrOverwritten, because the server said so. It reports false if l was over
// before.
func (e *Engine) Lost(l *Lease, why error) bool {
	e.mu.Lock()
	live := l.state == registered
	if live {
		e.remove(l)
	}
	e.mu.Unlock()
	if live {
		l.Ended(why)
	}
	return live
}

func (e *Engine) remove(l *Lease) {
	l.state = over
	heap.Remove(&e.due, int(l.index))
	if e.heart != nil && l.group != beatless {
		e.heart.parts[l.group].leases--
	}
	at := e.entry(l.Key)
	switch first := e.entries[at]; {
	case first != l:
		for first.sibling != l {
			first = first.sibling
		}
		first.sibling = l.sibling
	case l.sibling != nil:
		e.entries[at] = l.sibling
	default:
		delete(e.entries, at) // a name that is not held costs nothing
	}
	l.sibling = nil
}

// Longest raises l.Longest to d, and returns for how long from now the server may have l then.
func (e *Engine) Longest(l *Lease, d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.Longest = max(l.Longest, d)
	return l.Longest
}

// EndAll tells the holders of all registered leases that they are over, and goes on renewing each lease until it is
// removed or the engine stops.
func (e *Engine) EndAll(why error) {
	e.mu.Lock()
	all := slices.Clone(e.due)
	e.mu.Unlock()
	for _, l := range all {
		l.Ended(why)
	}
}
