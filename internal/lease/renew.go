package lease

import (
	"context"
	"errors"
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
	tryAgain := errors.As(err, &redisErr) && redisErr.IsTryAgain() // their slot is being migrated: see keys.go
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
	call := script.Call{
		Script: renewScript, Keys: keys, Args: args, Tracked: conn, Replicas: e.replicas, ReplicasWait: e.replicasWait,
		Patient: true,
	}
	if onLateReply != nil && e.replicas == 0 { // a late reply does not say which replicas have the renewal
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
			lost = append(lost, leaseEvent{lease, lossOf(verdict)})
			events = append(events, leaseEvent{lease, lossOf(verdict)})
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
	e.notifyEnded("redlatch: hold lost: the server no longer knows it", lost)
	for _, event := range events {
		event.lease.Of.Renewed(event.err)
	}
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
