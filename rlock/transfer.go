package rlock

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// How the terms of a caller are settled when it has its turn. The lease, label and MaxHold of a call are no business of
// the queue on the server: there the process waits as one owner, with the same short first lease for all callers.
//
//	a turn ended, or a grant came: the next caller is x
//	      |
//	      v                                          yes
//	the hold suits x as it is on the server? -----------------> x has its turn without a call; the watchdog raises a
//	      | no                                                  short lease soon (lease.Engine.Retake)
//	      v                                  granted
//	transfer from -> to, with x's lease ----------------------> x has its turn as "to"
//	      |                 |
//	      | lost, or not    | no reply: pending releases of
//	      v alone           v both owners
//	"to" asks like any other request
//
// A hold suits a caller if all of these are true:
//
//   - its owner is not known elsewhere (Owner, Extend), because a joiner of one turn would work beside the next;
//   - it has the caller's label, which is part of the owner;
//   - it needs no token of its own: each turn of a Fenced lock has another;
//   - the server's lease is not too short for the caller, and not longer than the caller was promised: see Retake.
//
// The transfer is a request of "to", and waits in the line's place: callers may leave meanwhile, and the first in line
// when the reply comes has the turn.
//
//	caller A                  caller B                      server
//	Unlock: the turn is over
//	"from" leaves the watchdog
//	                          transfer from -> to  ------>  from holds it, alone: now it is to's
//	                          works, as to
//
//   - Until the reply neither owner is used.
//   - B leaves before the reply: the next caller has "to", by another transfer if it does not suit; or else it is
//     released.
//   - The reply is lost: "to" asks, and finds that it holds the lock, or not. Both owners have pending releases until
//     the transfer cannot run any more. "from" is never used again.
//   - It runs twice: "to" holds the lock, and is granted it again.
//   - "from" has lost the lock, or was joined, or a reader is under its write hold: nothing is done, the tenure is
//     over, and "to" queues.
//   - A request of "from" that was not answered enters it into the queue again: "from" has a pending release until then
//     (session.Holding.Replaced).
//   - The process dies between the grant and the turn: the lock is free after the short first lease.

// firstLease is the lease that is written for a tenure whose caller is not known yet. It is short: a waiter that turns
// out to be cut off keeps others out for a short time only. It leaves time for a renewal that gets no answer, and
// another.
func (c *Client) firstLease() time.Duration {
	return min(c.opts.WatchdogTimeout, c.shortLease())
}

func (c *Client) shortLease() time.Duration {
	poll := min(c.opts.PollCap, wait.MaxPoll)
	return max(4*poll, 4*c.opts.CallTimeout, time.Second)
}

// retakeFor has a caller have what own holds, without a call. It reports false if that cannot be. Called with mu held.
func (cohorts *lockCohorts) retakeFor(own *owner, caller *queuedCaller) bool {
	client := own.lock.c
	if !own.hasLabel(caller.terms.label) || own.lock.kind.confirmsGrants && own.Turn() > 0 {
		return false
	}
	return client.engine.Retake(caller.ctx, &own.Lease, caller.promisedLease(), caller.autoRenew, client.opts.MaxHold)
}

// transfer has a new owner take over what the tenure holds, on the terms of the first in line. Called with mu held.
func (cohorts *lockCohorts) transfer(cohort *lockCohort) {
	from := cohort.own
	cohort.own = nil
	_ = from.lock.c.engine.Remove(&from.Lease) // before it is sent: see package lease
	contender := cohort.newRequest(cohort.callers.First(), nil)
	contender.replaced = from
	contender.own.Continue(from.Turn())
	cohorts.requestInBackground(contender)
}

// settleReplaced ends the owner from which another was to take over.
func (a *acquisition) settleReplaced(from *owner, reply acquireReply, err error, received time.Time) {
	var until time.Time
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		until = a.lastRunAt
	case err != nil:
		until = received
	case reply.status == acquireGranted:
		a.transferred = true
	case reply.status != acquireLost:
		until = received
	}
	from.Replaced(until)
}
