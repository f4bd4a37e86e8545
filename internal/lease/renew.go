package lease

import (
	"container/heap"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// asked is one lease in a call.
type asked struct {
	*Lease
	length time.Duration // asked for: howLong for a look
	term   time.Duration // the lease's length, whatever is asked for
}

type batchKey struct {
	script    *script.Script
	slot      uint16
	untracked bool
}

// send renews one batch on a goroutine of its own, so that the clock is never held up by the network. Without a free
// slot the batch is put back, to be retried within moments.
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
		// two tries fit between the moment a renewal is due and half of what is left of the lease
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
	if apart := errors.As(err, &re) && re.IsTryAgain(); apart && len(batch) > 1 {
		// All at the same time: one may be at a node that does not answer. Their number is bounded with the batch's.
		var wg sync.WaitGroup
		for i := range batch {
			wg.Go(func() { e.deliver(ctx, conn, batch[i:i+1]) })
		}
		wg.Wait()
		return
	} else if apart && len(keys) > 1 {
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

// lossOf is how a lease is over of which a script said so.
func lossOf(verdict int64) error {
	if verdict == overwritten {
		return errs.ErrOverwritten
	}
	return errs.ErrLost
}

// askByKey renews a lease whose keys are apart: each alone, and all of them twice.
//
// Once would not do, because between two calls others may act on what the first has not seen to yet. A write hold with an
// end of its own, in the second key, that has just passed:
//
//	ours      raises the first key: it is held
//	another   finds the end passed, and takes the hold out of both keys
//	ours      finds no end in the second key, as most write holds have none
//
// The second time the first key says that nothing is held. What it says then is true from the first time on, and what is
// made from the keys since then lasts as long as they were raised to.
func (e *Engine) askByKey(ctx context.Context, conn script.Conn, a asked, keys []string) (verdicts []int64, err error) {
	least := int64(1)
	for i := range 2 * len(keys) {
		n := i % len(keys)
		args := []string{a.Owner, script.Millis(a.length), strconv.Itoa(n + 1)}
		if verdicts, err = e.ask(ctx, conn, a.Renew, keys[n:n+1], args, 1); err != nil || verdicts[0] < 1 {
			return verdicts, err
		}
		if v := verdicts[0]; v > 1 && (v < least || least == 1) {
			least = v
		}
	}
	return []int64{least}, nil
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
			// "not held" is true all the same; "renewed" is not to be relied on
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

// answer takes in what a call said of each lease. err: nothing is known of any.
func (e *Engine) answer(batch []asked, verdicts []int64, sent time.Time, err error) {
	var lost, events []event
	now := e.now()
	e.mu.Lock()
	for i, a := range batch {
		l := a.Lease
		if l.state != registered {
			continue // released or ended meanwhile: the answer is about nothing any more
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

// renewedOrSeen takes in that the server said yes to what was asked. Called with mu held.
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

// retryPause is short, because a third of the lease is all there is before the next scheduled try, and long enough
// not to hammer a server that refuses at once.
func retryPause(length time.Duration, err error) time.Duration {
	if err == errNoSlot {
		// long enough that a stopped server with a hundred thousand holds does not keep a processor busy, and still
		// maxFlights*batchSize leases each time
		return 20 * time.Millisecond
	}
	return min(max(length/60, time.Millisecond), 250*time.Millisecond)
}
