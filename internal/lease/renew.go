package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// renewBatch renews one batch, in one call if the server allows it.
func (e *Engine) renewBatch(ctx context.Context, conn script.Conn, batch []leaseRequest) {
	keys := make([]string, 0, len(batch))
	args := make([]string, 0, 2*len(batch))
	for _, request := range batch {
		keys = append(keys, request.keys()...)
		args = append(args, request.Owner, script.Millis(request.length))
	}
	sent := time.Now()
	verdicts, err := e.callRenewal(ctx, conn, batch[0].Renew, keys, args, len(batch), func(verdicts []int64) {
		e.recordLateReply(batch, verdicts, sent)
	})
	var redisErr *rueidis.RedisError
	tryAgain := errors.As(err, &redisErr) && redisErr.IsTryAgain() // their slot is being migrated: see renewByKey
	switch {
	case tryAgain && len(batch) > 1:
		e.renewEach(ctx, conn, batch)
		return
	case script.AcrossSlots(err) && len(batch) > 1: // like all calls that were queued at the first such refusal
		script.BySlot(batch, func(request leaseRequest) string { return request.Key },
			func(part []leaseRequest) { e.renewBatch(ctx, conn, part) })
		return
	case tryAgain && len(keys) > 1:
		sent = time.Now()
		verdicts, err = e.renewByKey(ctx, conn, batch[0], keys)
	}
	e.recordReply(batch, verdicts, sent, err)
}

// The verdicts of a renewal script on a lease, other than the time that it has left.
const (
	notHeld     = 0
	notKnown    = -1
	overwritten = -2
	denied      = -3
)

var (
	errBadReply = errors.New("renewal: reply of unexpected length")
	errKey      = errors.New("renewal: the server reports an error on this key")
	errDenied   = fmt.Errorf("%w: renewal: the user may not read this key", errs.ErrDenied)
)

// lossOf returns the error of a lease that a script did not find.
func lossOf(verdict int64) error {
	if verdict == overwritten {
		return errs.ErrOverwritten
	}
	return errs.ErrLost
}

// callRenewal makes one call of a renewal script, for that number of leases, and waits for its reply until ctx ends.
// onLateReply, if not nil, receives a reply that comes after that.
func (e *Engine) callRenewal(
	ctx context.Context, conn script.Conn, renewScript *script.Script, keys, args []string, leases int,
	onLateReply func([]int64),
) (verdicts []int64, err error) {
	call := e.renewal
	call.Script, call.Keys, call.Args, call.Tracked, call.Patient = renewScript, keys, args, conn, true
	if onLateReply != nil && call.Replicas == 0 { // a late reply does not say which replicas have the renewal
		call.Late = func(res rueidis.RedisResult) {
			if verdicts, err := res.AsIntSlice(); err == nil && len(verdicts) == leases {
				onLateReply(verdicts)
			}
		}
	}
	message, err := e.runner.Attempt(ctx, call)
	if notReplicated := errors.Is(err, errs.ErrNotReplicated); err == nil || notReplicated {
		var replyErr error
		if verdicts, replyErr = message.AsIntSlice(); replyErr != nil {
			err = replyErr
		} else if notReplicated {
			// "not held" is true all the same; "renewed" cannot be relied on
			for i, verdict := range verdicts {
				if verdict >= 1 {
					verdicts[i] = -1
				}
			}
			err = nil
		}
	}
	if err == nil && len(verdicts) != leases {
		err = errBadReply
	}
	return verdicts, err
}

// recordReply records the reply of a call for each lease. err: the outcome is not known for any lease.
//
// Errors inside the renewal script are caught key by key: an error on one key, as of another type, does not affect the
// other leases of the batch (TestRenewal_NotHeld_EndsThatLeaseOnly).
func (e *Engine) recordReply(batch []leaseRequest, verdicts []int64, sent time.Time, err error) {
	var lost, events []leaseEvent
	now := e.clock.now()
	e.mu.Lock()
	for i, request := range batch {
		lease := request.Lease
		if lease.state != registered {
			continue // released or ended meanwhile: the reply has no meaning any more
		}
		lease.schedule.inFlight = false
		reason := err
		switch {
		case err != nil:
		case verdicts[i] >= 1:
			e.recordHeld(request, verdicts[i], sent, now)
		case verdicts[i] == notKnown:
			reason = errKey
		case verdicts[i] == denied:
			reason = errDenied
		default:
			e.remove(lease)
			reason = lossOf(verdicts[i])
			lost = append(lost, leaseEvent{lease, reason})
		}
		if lease.state == registered {
			if reason != nil {
				lease.schedule.retry(now.Add(retryPause(lease.schedule.serverLength())), request.length)
				lease.raiseUnanswered = lease.raiseUnanswered || request.length > 0 // see Retake
			}
			e.rescheduled(lease)
		}
		if request.length > 0 || reason != nil { // a look without a loss is not a renewal
			events = append(events, leaseEvent{lease, reason})
		}
	}
	e.mu.Unlock()
	e.notifyReply(lost, events)
}

// notifyReply calls Ended of leases that are lost, and Renewed after the renewals and the failures. Called without mu.
func (e *Engine) notifyReply(lost, events []leaseEvent) {
	e.notifyEnded("redlatch: hold lost: the server no longer knows it", lost)
	for _, event := range events {
		event.lease.Of.Renewed(event.err)
	}
}

// recordLateReply records the reply of a call that had been given up: its leases may be under way again, or answered
// since. The reply is valid all the same: a renewal counts from its own send, and a lease that is not held will not be
// held again.
//
//	engine                                  server
//	renews a, at s                          is slow
//	gives up, requests anew
//	                                        runs the first call: a is held, from then on for a lease
//	the first reply: a is safe until
//	  s + lease - margin
//	the second reply: a is safe until later
//
// (TestLateReply_TwoSends_CountsFromItsOwn) The reply may come before recordReply knows that the call was given up.
// Then the lease is renewed once more than necessary.
func (e *Engine) recordLateReply(batch []leaseRequest, verdicts []int64, sent time.Time) {
	var lost, events []leaseEvent
	now := e.clock.now()
	e.mu.Lock()
	for i, request := range batch {
		lease, verdict := request.Lease, verdicts[i]
		switch {
		case lease.state != registered || verdict == notKnown || verdict == denied:
			continue
		case verdict < 1:
			e.remove(lease)
			loss := leaseEvent{lease, lossOf(verdict)}
			lost, events = append(lost, loss), append(events, loss)
			continue
		case lease.schedule.retrying && !lease.schedule.inFlight: // no call was sent since
			e.recordHeld(request, verdict, sent, now)
		case request.length > 0: // the schedule follows the call that was sent since
			e.extendTrust(lease, sent, request.length)
		}
		e.rescheduled(lease)
		if request.length > 0 {
			events = append(events, leaseEvent{lease, nil})
		}
	}
	e.mu.Unlock()
	e.notifyReply(lost, events)
}

// recordHeld records that the server has renewed the lease, or found it held. Called with mu held.
func (e *Engine) recordHeld(request leaseRequest, verdict int64, sent time.Time, now instant) {
	lease := request.Lease
	lease.schedule.recordHeld(now, request.length)
	beforeSleep := e.clock.sleptSince(e.clock.at(sent)) > 0
	if request.length > 0 {
		e.extendTrust(lease, sent, request.length)
	} else if !beforeSleep {
		lease.applyServerLease(e.clock.at(sent), script.Duration(verdict-1), now)
	}
	if beforeSleep {
		lease.schedule.renewAt, lease.schedule.checkAt = now, now
	} else if lease.trust.isUncertain() {
		lease.schedule.checkAt = now // the server has a longer lease than that of the renewals
	}
}

// retryPause is short, because a third of the lease is all the time before the next scheduled attempt. It is long
// enough not to flood a server that refuses at once.
func retryPause(length time.Duration) time.Duration {
	return min(max(length/60, time.Millisecond), 250*time.Millisecond)
}

// Extend requests a lease of at least extension at once, until it is answered or ctx or the lease ends. errs.ErrLost or
// errs.ErrOverwritten: the server says that the lease is not held, which ends it. Neither confirmed nor an error: the
// lease was over before the reply could be recorded; Ended has been or is being called.
func (e *Engine) Extend(ctx context.Context, lease *Lease, extension time.Duration) (confirmed bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, e.Until(lease)) // a later reply has no use
	defer cancel()
	e.Longest(lease, extension)
	sent := time.Now()
	call := e.renewal
	call.Script, call.Keys, call.Args = lease.Renew, lease.keys(), []string{lease.Owner, script.Millis(extension)}
	message, err := e.runner.Do(ctx, call)
	if err != nil {
		return false, err
	}
	verdicts, err := message.AsIntSlice()
	switch {
	case err != nil || len(verdicts) != 1:
		return false, script.Unexpected(fmt.Sprintf("renew on %q", lease.Key), verdicts, err)
	case verdicts[0] == notKnown:
		return false, fmt.Errorf("%w: renew on %q: the server could not (memory is full)", errs.ErrUnavailable, lease.Key)
	case verdicts[0] == denied:
		return false, fmt.Errorf("%w: renew on %q: the user may not read it", errs.ErrDenied, lease.Key)
	case verdicts[0] < 1:
		loss := lossOf(verdicts[0])
		e.Lost(lease, loss)
		return false, loss
	}
	return e.Confirmed(lease, sent, extension), nil
}

// keys returns all keys of the lease.
func (l *Lease) keys() []string {
	if l.More == nil {
		return []string{l.Key}
	}
	return append([]string{l.Key}, *l.More...)
}

// renewEach renews each lease of a batch alone, because the server refused the batch as a whole (TRYAGAIN). If the
// batch were only postponed, it would be the same batch again: of two holds in a slot that is being migrated, on two
// nodes, neither would be renewed until both were lost (TestRenewals_LeasesApart_AreMadeOneByOne).
func (e *Engine) renewEach(ctx context.Context, conn script.Conn, batch []leaseRequest) {
	// All at the same time, because one may be at a node that does not answer. batchSize bounds their number.
	var wg sync.WaitGroup
	for i := range batch {
		wg.Go(func() { e.renewBatch(ctx, conn, batch[i:i+1]) })
	}
	wg.Wait()
}

// renewByKey renews a lease whose keys are on two nodes: each key alone, and all of them twice. The server refuses
// several keys also if one of them does not exist, as the ends of most writers and the notes of a semaphore. So this
// goes on from the first moment of a migration to the last.
//
// One pass would not do, because between two calls other processes may change a key that the first call has not reached
// yet. For example, a write hold has an end of its own, in the second key, that has just passed:
//
//	ours      raises the first key: it is held
//	another   finds the end passed, and removes the hold from both keys
//	ours      finds no end in the second key, as most write holds have none
//
// In the second pass the first key shows that nothing is held. Its verdict is true from the first pass on, and a hold
// that the keys show since then lasts as long as they were raised to (TestRenewal_KeysApart_IsMadeKeyByKey).
func (e *Engine) renewByKey(ctx context.Context, conn script.Conn, request leaseRequest,
	keys []string) (verdicts []int64, err error) {
	shortest := int64(1)
	for i := range 2 * len(keys) {
		number := i % len(keys)
		args := []string{request.Owner, script.Millis(request.length), strconv.Itoa(number + 1)}
		verdicts, err = e.callRenewal(ctx, conn, request.Renew, keys[number:number+1], args, 1, nil)
		if err != nil || verdicts[0] < 1 {
			return verdicts, err
		}
		if left := verdicts[0]; left > 1 && (left < shortest || shortest == 1) {
			shortest = left
		}
	}
	return []int64{shortest}, nil
}
