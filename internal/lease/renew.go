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

// asked is one lease in a call.
type asked struct {
	*Lease
	length time.Duration // that is asked for: howLong for a look
	term   time.Duration // the lease's length, whatever is asked for
}

// batchKey is what the leases of one call have in common.
type batchKey struct {
	script    *script.Script
	slot      uint16
	untracked bool
}

// send renews one batch on a goroutine of its own, so that the network never holds up the clock. Without a free place among
// maxFlights the batch is put back, to be tried again within moments.
func (e *Engine) send(batch []asked) {
	select {
	case e.flight <- struct{}{}:
	default:
		e.answer(batch, nil, time.Time{}, errNoSlot)
		return
	}
	var conn script.Conn
	if !batch[0].Untracked {
		conn = e.tracked()
	}
	e.wg.Add(1)
	go func() {
		defer func() { <-e.flight; e.wg.Done() }()
		shortest := batch[0].term
		for _, a := range batch {
			shortest = min(shortest, a.term)
		}
		// two tries fit between the moment at which a renewal is due and half of what is left of the lease
		ctx, cancel := context.WithTimeout(e.ctx, shortest/6)
		defer cancel()
		e.deliver(ctx, conn, batch)
	}()
}

// deliver renews one batch, together if the server lets it.
func (e *Engine) deliver(ctx context.Context, conn script.Conn, batch []asked) {
	keys := make([]string, 0, len(batch))
	args := make([]string, 0, 2*len(batch))
	for _, a := range batch {
		keys = append(keys, a.keys()...)
		args = append(args, a.Owner, script.Millis(a.length))
	}
	sent := time.Now()
	verdicts, err := e.ask(ctx, conn, batch[0].Renew, keys, args, len(batch))
	var re *rueidis.RedisError
	apart := errors.As(err, &re) && re.IsTryAgain() // their slot is being migrated: see keys.go
	switch {
	case apart && len(batch) > 1:
		e.deliverEach(ctx, conn, batch)
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

// ask makes one call of a renewal script, on n leases.
func (e *Engine) ask(ctx context.Context, conn script.Conn, s *script.Script, keys, args []string, n int) (verdicts []int64, err error) {
	m, err := e.runner.Attempt(ctx, script.Call{
		Script: s, Keys: keys, Args: args, Tracked: conn, Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
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
// Errors inside the renewal script are caught key by key: an error on one key, as of another type, costs the other leases of the
// batch nothing (TestNotHeldEndsThatLeaseAtOnceAndNoOther).
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
				l.retry(now.Add(retryPause(l.term(), err)), a.length)
			}
			l.schedule()
			heap.Fix(&e.due, l.index)
			e.wakeBy(l.next)
		}
		if why != errNoSlot && (a.length > 0 || why != nil) { // a look that finds nothing amiss is no renewal
			events = append(events, event{l, why})
		}
	}
	e.mu.Unlock()
	e.end("redlatch: hold lost: the server no longer knows it", lost)
	for _, ev := range events {
		e.renewed(ev.lease.Values(), ev.lease.Name, ev.err)
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
		e.settle(l, sent, time.Duration(verdict-1)*time.Millisecond, now)
	}
	if e.at(sent).Before(e.woke) {
		l.renewAt, l.checkAt = now, now
	} else if l.doubted() {
		l.checkAt = now // it has a lease beyond that of its renewals
	}
}

// retryPause is short, because a third of the lease is all there is before the next scheduled try, and long enough not to flood
// a server that refuses at once.
func retryPause(length time.Duration, err error) time.Duration {
	if err == errNoSlot {
		// long enough that a hundred thousand holds on a stopped server do not keep a processor busy; each time there is
		// room for maxFlights*batchSize leases
		return 20 * time.Millisecond
	}
	return min(max(length/60, time.Millisecond), 250*time.Millisecond)
}
