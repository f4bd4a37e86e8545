package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// This file has the life of a turn: a caller waits for its turn, takes it, and the next caller gets the turn. The rules
// are in cohort.go.

// giveTurn gives a caller its turn as the cohort's owner. The caller must take the turn before takeBy; 0: no limit.
// Called with mu held.
func (cohorts *lockCohorts) giveTurn(cohort *lockCohort, caller *queuedCaller, takeBy time.Duration) {
	caller.endWait(cohort.own, takeBy, nil)
	if cohort.callers.First() == nil && !cohort.lock.kind.waiting.concurrentTurns {
		cohorts.removeCohort(cohort)
	}
}

// endWait ends the wait of a caller with a turn or an error. Called with mu held.
func (caller *queuedCaller) endWait(own *owner, takeBy time.Duration, err error) {
	if caller.cohort != nil {
		caller.cohort.remove(caller)
	}
	caller.own, caller.takeBy, caller.err = own, takeBy, err
	if caller.wait != nil { // else its own goroutine ends its wait, with the first request
		caller.wait.Wake()
	}
}

// awaitTurn waits until the caller has its turn, gets an error, or gives up.
func (cohorts *lockCohorts) awaitTurn(caller *queuedCaller) (gaveUp error) {
	cohorts.mu.Lock()
	if caller.own == nil && caller.err == nil {
		caller.startWait(nil) // of a first caller whose request was refused, or whose grant cannot be used
		cohorts.mu.Unlock()
		gaveUp = caller.wait.Await()
		cohorts.mu.Lock()
	}
	defer cohorts.mu.Unlock()
	if caller.wait != nil {
		caller.wait.Leave()
		caller.wait = nil
	}
	cohort := caller.cohort
	switch {
	case caller.own != nil || caller.err != nil:
		return caller.err
	case cohort == nil:
		caller.hasLeft = true
		return gaveUp
	}
	cohort.remove(caller)
	switch contender := cohort.contender; {
	case cohort.callers.First() != nil:
	case contender == nil:
		cohorts.removeCohort(cohort)
	case contender.wait != nil:
		contender.wait.Wake() // the contender withdraws its request
	}
	return gaveUp
}

// takeTurn makes the hold of a caller that has its turn. It returns neither a hold nor an error if the turn cannot be
// used: the caller then waits again, as the first in the local queue.
//
//	A                               B                        server
//	Unlock: gives B its turn
//	                                (the machine is paused)
//	                                                         the lease ends; another process holds the lock
//	                                wakes: takes its turn
//
// So B checks the clock itself (rule 2).
func (cohorts *lockCohorts) takeTurn(caller *queuedCaller) (*Hold, error) {
	client, own := caller.lock.c, caller.own
	if err := client.waiters.Ended(caller.ctx); err != nil {
		own.Decline()
		return nil, &wait.GaveUp{Left: -1, Cause: err}
	}
	if caller.takeBy != 0 {
		if cohorts.now() >= caller.takeBy || !client.engine.Lasting(&own.Lease) {
			own.Decline()
			return nil, nil
		}
	}
	handle, err := own.Take(caller.terms.autoRenew())
	if err != nil {
		own.Decline()
		return nil, nil
	}
	return newHold(handle), nil
}

// Next implements hold.Follower. A turn has ended: Next gives the next turn to the first caller, or starts its
// transfer to another owner. It returns false if the tenure must end. known says that another process knows the owner's
// id, so the next caller needs another owner.
func (o *owner) Next(known bool) bool {
	client := o.lock.c
	cohorts := &client.cohorts
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	cohort := cohorts.cohortOfTenure(o)
	if cohort == nil || !cohort.hasWaiters() || !client.engine.Lasting(&o.Lease) {
		return false
	}
	if o.keepUntil.Load() != 0 || o.once.hasAnswer() {
		return false
	}
	if cohorts.isOver(cohort) {
		return false
	}
	cohort.turnsLeft--
	caller := cohort.callers.First()
	if known || o.lock.kind.confirmsGrants || !cohorts.retakeFor(o, caller) {
		return cohorts.transfer(cohort)
	}
	cohorts.followingTurns++
	cohorts.giveTurn(cohort, caller, cohort.turnsUntil)
	return true
}

// isOver reports whether no further turn may begin in the tenure. Called with mu held.
func (cohorts *lockCohorts) isOver(cohort *lockCohort) bool {
	return cohort.turnsLeft == 0 || cohorts.now() >= cohort.turnsUntil
}

// Gone implements hold.Follower.
func (o *owner) Gone() {
	cohorts := &o.lock.c.cohorts
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	cohorts.detachOwner(o)
}

// detachOwner takes an owner that does not hold the lock any more from its cohort, and requests the next tenure if
// callers wait. Called with mu held.
func (cohorts *lockCohorts) detachOwner(o *owner) {
	if cohort := cohorts.cohortOfTenure(o); cohort != nil {
		cohort.own = nil
		if cohort.contender == nil {
			cohorts.requestNextTenure(cohort)
		}
	}
}

// endTenure ends a tenure whose release is next. If callers wait, it returns the contender for the next tenure, whose
// first request releases o, too. Otherwise it returns nil: the caller releases o.
func (cohorts *lockCohorts) endTenure(o *owner) *lockContender {
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	cohort := cohorts.cohortOfTenure(o)
	// Readers that wait have a contender already.
	if cohort == nil || !cohort.hasWaiters() || o.lock.kind.waiting.concurrentTurns {
		cohorts.detachOwner(o)
		return nil
	}
	cohort.own = nil
	contender := cohort.newRequest(cohort.callers.First(), nil)
	contender.useCommonTerms()
	contender.previous, contender.releaseResults = o, make(chan releaseResult, 1)
	cohorts.requestInBackground(contender)
	return contender
}

// awaitRelease waits for the result of the release that the contender's first request sends.
func (contender *lockContender) awaitRelease(ctx context.Context) (releaseStatus, error) {
	select {
	case result := <-contender.releaseResults:
		return result.status, result.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: release of %q: %w", errs.ErrUnknownOutcome, contender.lock.name, errs.Cut(errs.Ended(ctx)))
	}
}
