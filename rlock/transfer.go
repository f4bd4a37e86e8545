package rlock

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// This file applies the options of a caller when its turn begins. The lease, label and MaxHold of a call do not concern
// the queue on the server: the process waits there as one owner, with the same short first lease for all callers.
//
//	a turn has ended, or a grant has come: the next caller is B
//	      |
//	      v                                         yes
//	the hold on the server suits B as it is? ----------------> B has its turn without a call; the watchdog raises a
//	      | no                                                 short lease soon (lease.Engine.Retake)
//	      v                                  granted
//	transfer from -> to, with B's lease ---------------------> B has its turn as "to"
//	      |                 |
//	      | lost, or not    | no reply: pending releases of
//	      v alone           v both owners
//	"to" requests the lock like any other owner
//
// A hold suits a caller if all of these are true:
//
//   - The hold's owner is not known elsewhere (Owner, Extend). Otherwise a process that joins the owner would work
//     beside the next caller.
//   - The owner has the caller's label, because the label is part of the owner.
//   - No caller had a turn with the owner's token: each turn of a Fenced lock has another token (Next).
//   - The server's lease is not too short for the caller, and not longer than the caller was promised: see Retake.
//
// The transfer is a request of "to", and takes the place of the cohort's request. It is for the first caller that still
// waits after a round trip. Callers may leave meanwhile. At the reply that caller has the turn, or, if it has left, the
// first in the local queue.
//
//	caller A                  caller B                      server
//	Unlock: its turn ends
//	"from" leaves the watchdog
//	                          transfer from -> to  ------>  from holds the lock, alone: now to holds it
//	                          works, as to
//
//   - Until the reply neither owner is used.
//   - B leaves before the reply: the next caller has "to", by another transfer if "to" does not suit the caller.
//     Without a caller "to" is released.
//   - The reply is lost: "to" requests the lock, and finds that it holds the lock, or not. Both owners have pending
//     releases until the transfer cannot run any more. "from" is never used again.
//   - The transfer runs twice: "to" holds the lock, and is granted the lock again.
//   - "from" has lost the lock, or was joined, or a reader is under its write hold: the transfer does nothing, the
//     tenure ends, and "to" queues.
//   - A request of "from" without a reply enters "from" into the queue again: "from" has a pending release until that
//     request cannot run any more (hold.Holding.Replaced).
//   - The process dies between the grant and the turn: the lock is free after the short first lease.

// firstLease returns the lease that is written for a tenure whose caller is not known yet. It is short, so that a
// waiter that is cut off keeps the lock from others for a short time only. It leaves time for two renewals: one without
// a reply, and another.
func (c *Client) firstLease() time.Duration {
	return min(c.opts.WatchdogTimeout, c.shortLease())
}

func (c *Client) shortLease() time.Duration {
	poll := min(c.opts.PollCap, wait.MaxPoll)
	return max(4*poll, 4*c.opts.CallTimeout, time.Second)
}

// retakeFor gives own's hold the caller's lease and context, without a call. It reports false if the hold does not suit
// the caller. Called with mu held.
func (cohorts *lockCohorts) retakeFor(own *owner, caller *queuedCaller) bool {
	client := own.lock.c
	if !own.hasLabel(caller.terms.label) {
		return false
	}
	return client.engine.Retake(caller.ctx, &own.Lease, caller.promisedLease(), caller.terms.autoRenew(),
		client.opts.MaxHold)
}

// transfer requests that a new owner replaces the tenure's owner, with the options of the first caller that still waits
// at the reply. Without such a caller transfer returns false, and the tenure must end. Called with mu held.
//
// The first callers of a local queue have waited longest, so callers with little patience leave soon. If the transfer
// were for the first caller in any case, all callers could leave, one transfer after the other, and no process would
// use the lock:
//
//	cohort                               server
//	transfer, for A with label a ----->  a's owner holds the lock
//	A gives up
//	transfer, for B with label b ----->  b's owner holds the lock
//	B gives up ...
func (cohorts *lockCohorts) transfer(cohort *lockCohort) bool {
	from, caller := cohort.own, cohort.callers.First()
	replyAt := time.Now().Add(from.lock.c.runner.Clock.Trip(from.lock.key))
	for caller != nil && caller.leavesBefore(replyAt) {
		caller = caller.Behind()
	}
	if caller == nil {
		return false
	}
	cohort.own = nil
	_ = from.lock.c.engine.Remove(&from.Lease) // before the transfer is sent: see package lease
	contender := cohort.newRequest(caller, nil)
	contender.replaced = from
	contender.own.Continue(from.Turn())
	cohorts.requestInBackground(contender)
	return true
}

// leavesBefore reports whether the caller gives up before an instant.
func (caller *queuedCaller) leavesBefore(instant time.Time) bool {
	leavesAt := wait.EndsAt(caller.ctx, caller.waitsUntil)
	return !leavesAt.IsZero() && leavesAt.Before(instant)
}

// settleReplaced ends the owner from that the request of a transfer was to replace.
func (a *acquisition) settleReplaced(from *owner, reply acquireReply, err error, received time.Time) {
	var until time.Time
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		until = a.times.lastRunAt
	case err != nil:
		until = received
	case reply.status == acquireGranted:
		a.grant.transferred = true
	case reply.status != acquireLost:
		until = received
	}
	from.Replaced(until)
}
