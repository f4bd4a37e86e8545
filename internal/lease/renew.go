package lease

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// deliver renews one batch, together if the server lets it.
func (e *Engine) deliver(ctx context.Context, conn script.Conn, batch []asked) {
	keys := make([]string, 0, len(batch))
	args := make([]string, 0, 2*len(batch))
	for _, a := range batch {
		keys = append(keys, a.keys()...)
		args = append(args, a.Owner, script.Millis(a.length))
	}
	sent := time.Now()
	verdicts, err := e.ask(ctx, conn, batch[0].Renew, keys, args, len(batch), func(verdicts []int64) {
		e.late(batch, verdicts, sent)
	})
	var re *rueidis.RedisError
	apart := errors.As(err, &re) && re.IsTryAgain() // their slot is being migrated: see keys.go
	switch {
	case apart && len(batch) > 1:
		e.deliverEach(ctx, conn, batch)
		return
	case script.AcrossSlots(err) && len(batch) > 1: // as all calls were that were in line when the first was refused
		script.BySlot(batch, func(a asked) string { return a.Key }, func(part []asked) { e.deliver(ctx, conn, part) })
		return
	case apart && len(keys) > 1:
		sent = time.Now()
		verdicts, err = e.askByKey(ctx, conn, batch[0], keys)
	}
	e.answer(batch, verdicts, sent, err)
}

// What a renewal script says of a lease, if it is not how long it has left.
const (
	notHeld     = 0
	notKnown    = -1
	overwritten = -2
	denied      = -3
)

// lossOf returns why a lease is over that a script did not find.
func lossOf(verdict int64) error {
	if verdict == overwritten {
		return errs.ErrOverwritten
	}
	return errs.ErrLost
}

// ask makes one call of a renewal script, on n leases, and waits for its reply until ctx ends. late, if not nil, gets
// what comes after that.
func (e *Engine) ask(
	ctx context.Context, conn script.Conn, s *script.Script, keys, args []string, n int, late func([]int64),
) (verdicts []int64, err error) {
	call := script.Call{
		Script: s, Keys: keys, Args: args, Tracked: conn, Replicas: e.replicas, ReplicasWait: e.replicasWait, Patient: true,
	}
	if late != nil && e.replicas == 0 { // what comes late does not say which replicas have it
		call.Late = func(res rueidis.RedisResult) {
			if verdicts, err := res.AsIntSlice(); err == nil && len(verdicts) == n {
				late(verdicts)
			}
		}
	}
	m, err := e.runner.Attempt(ctx, call)
	if unmet := errors.Is(err, errs.ErrNotReplicated); err == nil || unmet {
		var bad error
		if verdicts, bad = m.AsIntSlice(); bad != nil {
			err = bad
		} else if unmet {
			// "not held" is true all the same; "renewed" cannot be relied on
			for i, v := range verdicts {
				if v >= 1 {
					verdicts[i] = -1
				}
			}
			err = nil
		}
	}
	if err == nil && len(verdicts) != n {
		err = errBadReply
	}
	return verdicts, err
}

// answer takes in what a call said of each lease. err: nothing is known of any of them.
//
// Errors inside the renewal script are caught key by key: an error on one key, as of another type, costs the other
// leases of the batch nothing (TestRenewal_NotHeld_EndsThatLeaseOnly).
func (e *Engine) answer(batch []asked, verdicts []int64, sent time.Time, err error) {
	var lost, events []event
	now := e.now()
	e.mu.Lock()
	for i, a := range batch {
		l := a.Lease
		if l.state != registered {
			continue // released or ended meanwhile: the answer has no object any more
		}
		l.inFlight = false
		why := err
		switch {
		case err != nil:
		case verdicts[i] >= 1:
			e.renewedOrSeen(a, verdicts[i], sent, now)
		case verdicts[i] == notKnown:
			why = errKey
		case verdicts[i] == denied:
			why = errDenied
		default:
			e.remove(l)
			why = lossOf(verdicts[i])
			lost = append(lost, event{l, why})
		}
		if l.state == registered {
			if why != nil {
				l.retry(now.Add(retryPause(l.term())), a.length)
				l.unanswered = l.unanswered || a.length > 0 // see Retake
			}
			l.schedule()
			heap.Fix(&e.due, int(l.index))
			e.wakeBy(l.next)
		}
		if a.length > 0 || why != nil { // a look that finds nothing amiss is not a renewal
			events = append(events, event{l, why})
		}
	}
	e.mu.Unlock()
	e.end("redlatch: hold lost: the server no longer knows it", lost)
	for _, ev := range events {
		e.renewed(e.Values(ev.lease), ev.lease.Name, ev.err)
	}
}

// late takes in what a call said that had been given up: its leases may be under way again, or answered since. What is
// true then is true all the same: a renewal counts from its own send, and what is not held will not be held again.
//
//	engine                                  server
//	renews a, at s                          is slow
//	gives up, asks anew
//	                                        runs the first call: a is held, from then on for a lease
//	the first reply: a is safe until
//	  s + lease - margin
//	the second reply: a is safe until later
//
// (TestLateReply_TwoSends_CountsFromItsOwn) It may come before answer knows that the call was given up: then the
// lease is renewed once more than it had to be.
func (e *Engine) late(batch []asked, verdicts []int64, sent time.Time) {
	var lost, events []event
	now := e.now()
	e.mu.Lock()
	for i, a := range batch {
		l, v := a.Lease, verdicts[i]
		switch {
		case l.state != registered || v == notKnown || v == denied:
			continue
		case v < 1:
			e.remove(l)
			lost = append(lost, event{l, lossOf(v)})
			events = append(events, event{l, lossOf(v)})
			continue
		case l.retrying && !l.inFlight: // nothing has been sent since
			e.renewedOrSeen(a, v, sent, now)
		case a.length > 0: // the schedule is that of the call that was sent since
			e.trust(l, sent, a.length)
		}
		l.schedule()
		heap.Fix(&e.due, int(l.index))
		e.wakeBy(l.next)
		if a.length > 0 {
			events = append(events, event{l, nil})
		}
	}
	e.mu.Unlock()
	e.end("redlatch: hold lost: the server no longer knows it", lost)
	for _, ev := range events {
		e.renewed(e.Values(ev.lease), ev.lease.Name, ev.err)
	}
}

// renewedOrSeen takes in that the server has renewed the lease, or seen it. Called with mu held.
func (e *Engine) renewedOrSeen(a asked, verdict int64, sent time.Time, now instant) {
	l := a.Lease
	l.retrying = false
	switch {
	case a.length > 0:
		l.short = 0
		l.plan(now)
		e.trust(l, sent, a.length)
	case a.length == howLong:
		e.applyServerLease(l, sent, time.Duration(verdict-1)*time.Millisecond, now)
	}
	if e.at(sent).Before(e.woke) {
		l.renewAt, l.checkAt = now, now
	} else if l.doubted() {
		l.checkAt = now // it has a lease beyond that of its renewals
	}
}

// retryPause is short, because a third of the lease is all there is before the next scheduled try, and long enough not
// to flood a server that refuses at once.
func retryPause(length time.Duration) time.Duration {
	return min(max(length/60, time.Millisecond), 250*time.Millisecond)
}
