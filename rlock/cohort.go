package rlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wait"
)

// The process is the party on the server, and its callers share what it has there (lock cohorting: Dice, Marathe and
// Shavit, PPoPP 2012). For each lock whose waiters queue, a client has one tenure at a time: one owner, one lease, one
// place in the server's queue. Callers wait for their turns in one line inside the process, and come and go there
// without a word to the server.
//
//	                 refused: a goroutine waits in the server's queue
//	                  +-----+
//	                  |     v         granted
//	first caller --> asking ---------------------> held: turns follow each other, without a call
//	                  |  ^                          |        |
//	   last one leaves|  |   bound, and callers wait|        | last turn ends
//	                  v  +--------------------------+        v
//	           withdrawing    one call releases, and       released
//	                          queues the next tenure
//
//	caller A            caller B            server
//	asks  -------------------------------->  granted: the process's owner is X
//	works, as X
//	                    waits here
//	Unlock: its turn
//	is over; no call
//	                    works, as X
//	                    Unlock  ---------->  X is released
//
// The rules:
//
//  1. A turn is one caller's. Contexts and handles carry it, not only the owner: what a goroutine kept of an earlier
//     turn re-enters nothing, and gets ErrLost, though the owner still holds the lock.
//  2. The one who takes a turn looks at the clock, not only the one who gives it. If its context has ended, if less
//     than a quarter of the lease is trusted, or if turns may begin no more, the tenure ends and another is asked for.
//  3. Turns follow each other for 20 ms from the grant on. If others waited on the server then, or that is not known,
//     as many follow as callers waited here, and 32 at most. No message has to say that another process waits, so no
//     message is needed that could be lost: when a bound is reached the tenure ends by one call, which releases it and
//     puts the next into the server's queue, behind those that wait. If none does, that call grants the lock anew.
//  4. The terms of a caller (lease, label, MaxHold) are settled when it has its turn: see transfer.go. So a request
//     belongs to the process, and not to the caller with whose terms it began.
//  5. Whatever ends a tenure ends the turn that runs. Callers that wait stay, and another tenure is asked for.
//  6. The first request is made on the goroutine of the first caller, and ends with its patience. Once it is refused a
//     goroutine of the process makes the requests, and all callers wait for their turns. The last caller that leaves
//     withdraws the request. Each reply is read, so what is granted meanwhile is released as soon as that is known. A
//     caller that comes before that goes on with the request.
//  7. The call that names the next tenure is a request of that tenure: until its answer, or its not-after, no answer to
//     a release of that owner is final.
//
// A loss (DEL, FLUSHALL) is seen by tracking, by a renewal, or at the end of the tenure, so turns may begin for 20 ms
// after it.

const (
	// maxTenure and mostTurns bound how long a lock stays within a process.
	maxTenure = 20 * time.Millisecond
	maxTurns  = 32
	// spareCohorts bounds how many are kept for the next locks.
	spareCohorts = 64
)

// lockCohorts are those of a client.
type lockCohorts struct {
	mu             sync.Mutex
	base           time.Time
	byLock         map[cohortKey]*lockCohort // of locks that callers wait for
	spare          []*lockCohort             // for the next: most locks are held for a moment
	followingTurns int64                     // turns that followed another
}

type cohortKey struct {
	key  string
	kind *kind // Reentrant and Fenced locks of one name have each their own, and wait for each other on the server
}

// lockCohort is the callers of a client for one lock, with what the client has of the lock: it holds the lock (own), or
// requests it (contender); for reading, both may be the case. Guarded by cohorts.mu. A lock that is held, and has no
// waiter here, has no cohort, unless it is for reading: it must cost little, and the watchdog's map finds its owner
// (attach).
type lockCohort struct {
	lock       *single
	callers    wait.List[*queuedCaller] // that wait for their turns
	turnsLeft  int32                    // how many may follow; negative: any number. Kept during a transfer
	turnsUntil time.Duration            // after cohorts.base; none begins later, or none joins those that read
	own        *owner
	contender  *lockContender
	refusal    refusalInfo // by the contender, for callers that give up
}

func (cohort *lockCohort) key() cohortKey { return cohortKey{cohort.lock.key, cohort.lock.kind} }

// hasWaiters reports whether callers wait, and not only for the end of a client that was closed.
func (cohort *lockCohort) hasWaiters() bool {
	return cohort.callers.First() != nil && cohort.lock.c.waiters.Ended(context.Background()) == nil
}

// queuedCaller is one call that waits for its turn. Guarded by cohorts.mu from join on.
type queuedCaller struct {
	wait.Links[*queuedCaller]
	lock       *single
	ctx        context.Context
	began      time.Time
	waitsUntil time.Time // when it gives up; zero: only ctx says
	terms      terms
	autoRenew  bool
	cohort     *lockCohort // in whose line it is; nil: in none
	wait       *wait.Caller
	reported   bool          // an observer was told that it waits
	hasLeft    bool          // it gave up while it was asked for beside others: see reading.go
	own        *owner        // it has the turn
	takeBy     time.Duration // and takes it by then; 0: it is the first of the tenure
	refusal    refusalInfo
	err        error
}

// promisedLease is what the caller was promised, in full.
func (caller *queuedCaller) promisedLease() time.Duration {
	return cmp.Or(caller.terms.lease, caller.lock.c.opts.WatchdogTimeout)
}

// lockContender is one request for a tenure, with an owner of its own.
type lockContender struct {
	acquisition
	cohort *lockCohort
	wait   *wait.Caller  // nil: it was granted
	caller *queuedCaller // on whose terms, if they are those of a caller

	previous       *owner             // of the last tenure, which the first request releases
	releaseResults chan releaseResult // receives the result of that
	repeats        int                // how often it asked again soon
	othersWaited   bool               // others may have waited when it was granted
	// Of readers:
	sharedRead *owner        // the tenure that does for this one: it asked under it
	joinUntil  time.Duration // after cohorts.base: until when others may join what was granted
}

// releaseResult is the result of a release of a tenure that is made with the request for the next.
type releaseResult struct {
	status releaseStatus
	err    error
}

// acquire waits for a turn, and makes its hold. room is for the request of the first caller, to be one piece of memory
// with it.
func (cohorts *lockCohorts) acquire(caller *queuedCaller,
	room *lockContender) (hold *Hold, last refusalInfo, err error) {
	for front := false; ; front = true {
		if err = cohorts.requestTurn(caller, room, front); err != nil {
			return nil, caller.refusal, err
		}
		if hold, err = cohorts.takeTurn(caller); hold != nil || err != nil {
			return hold, caller.refusal, err
		}
		room = nil
	}
}

// requestTurn waits until x has its turn, first of those that wait if front.
func (cohorts *lockCohorts) requestTurn(caller *queuedCaller, room *lockContender, front bool) error {
	cohorts.mu.Lock()
	cohort := cohorts.byLock[cohortKey{caller.lock.key, caller.lock.kind}]
	if cohort == nil {
		cohort = cohorts.adoptHeldLock(caller.lock)
	}
	if cohort == nil {
		cohort = cohorts.addCohort(caller.lock)
	}
	switch {
	case cohort.contender == nil && caller.canShareHold() && cohorts.joinSharedRead(cohort):
		caller.own, caller.takeBy, caller.err = cohort.own, 0, nil
		cohorts.mu.Unlock()
		return nil
	case cohort.contender == nil && (cohort.own == nil || caller.lock.kind.concurrentTurns):
		contender := cohort.newRequest(caller, room)
		cohort.enqueue(caller, false)
		contender.startWait(caller.ctx)
		cohorts.mu.Unlock()
		cohorts.requestInForeground(caller, contender)
	case caller.terms.wait == 0:
		cohorts.mu.Unlock()
		return errAsked
	default:
		cohort.enqueue(caller, front)
		cohorts.mu.Unlock()
		if !caller.lock.c.clustered { // in a Cluster a channel serves one key
			caller.lock.c.waiters.Listen(caller.lock.grantChannel())
		}
	}
	return cohorts.awaitTurn(caller)
}

// errAsked: another caller asks at this moment, so one that does not wait asks for itself.
var errAsked = errors.New("another caller asks")

// addCohort makes the cohort of a lock. Called with mu held.
func (cohorts *lockCohorts) addCohort(lock *single) (cohort *lockCohort) {
	if n := len(cohorts.spare); n > 0 {
		cohort, cohorts.spare = cohorts.spare[n-1], cohorts.spare[:n-1]
	} else {
		cohort = &lockCohort{}
	}
	if cohorts.byLock == nil {
		cohorts.byLock = map[cohortKey]*lockCohort{}
	}
	cohort.lock = lock
	cohorts.byLock[cohort.key()] = cohort
	return cohort
}

// maxTenure is how long the callers of this process follow each other.
func (l *single) maxTenure() time.Duration {
	if l.kind.tenureLength != nil {
		return l.kind.tenureLength(l)
	}
	return maxTenure
}

// adoptHeldLock makes the cohort of a lock that this process holds, and has no waiter for; nil: it does not hold it.
// Called with mu held.
//
// An owner that is on its way out is either found, and tells the cohort when it is (release, Gone), or is not found
// any more: the session takes it out of the watchdog before it sends the release, and ends a holding before it calls
// Gone, which waits for mu.
func (cohorts *lockCohorts) adoptHeldLock(lock *single) *lockCohort {
	if lock.kind.concurrentTurns {
		return nil
	}
	held := lock.c.engine.First(lock.key, func(candidate *lease.Lease) bool {
		own, ok := candidate.Of.(*owner)
		return ok && own.Follows() && own.lock.kind == lock.kind
	})
	if held == nil || !held.Of.(*owner).Lasts() {
		return nil
	}
	cohort := cohorts.addCohort(lock)
	cohort.setTenure(held.Of.(*owner), -1, held.Of.(*owner).turnsUntil)
	return cohort
}

// setTenure says that own is that of the tenure. Called with mu held.
func (cohort *lockCohort) setTenure(own *owner, turns int32, until time.Duration) {
	cohort.contender, cohort.own, cohort.turnsLeft, cohort.turnsUntil = nil, own, turns, until
	own.turnsUntil = until
}

// cohortOfTenure is the cohort of which own is the tenure; nil: there is none. Called with mu held.
func (cohorts *lockCohorts) cohortOfTenure(own *owner) *lockCohort {
	cohort := cohorts.byLock[cohortKey{own.lock.key, own.lock.kind}]
	if cohort == nil || cohort.own != own {
		return nil
	}
	return cohort
}

// removeCohort ends a cohort without waiters. Called with mu held.
func (cohorts *lockCohorts) removeCohort(cohort *lockCohort) {
	if own := cohort.own; own != nil && cohort.turnsLeft >= 0 {
		// Other processes wait on the server. A caller that comes now came later than they did.
		own.BarNext()
	}
	delete(cohorts.byLock, cohort.key())
	*cohort = lockCohort{}
	if len(cohorts.spare) < spareCohorts {
		cohorts.spare = append(cohorts.spare, cohort)
	}
}

// enqueue puts a caller into the line: behind the others, or before them.
func (cohort *lockCohort) enqueue(caller *queuedCaller, front bool) {
	caller.cohort, caller.own, caller.err = cohort, nil, nil
	cohort.callers.Add(caller, front)
	if caller.wait != nil { // a reader that left the line for a call which did not let it in
		return
	}
	lock := caller.lock
	request := wait.Request{Name: lock.name, Of: lock, Began: caller.began, Until: caller.waitsUntil,
		QueueKey: lock.key, Manner: lock.kind.title, Mode: wait.Turn, Reported: caller.reported}
	if cohort.own != nil && !lock.kind.concurrentTurns {
		request.FreeBy = lock.c.engine.Until(&cohort.own.Lease)
	}
	caller.wait = lock.c.waiters.Enter(caller.ctx, request)
}

// remove takes a caller out of the line.
func (cohort *lockCohort) remove(caller *queuedCaller) {
	cohort.callers.Remove(caller)
	caller.cohort, caller.refusal = nil, cohort.refusal
}

// newRequest makes the request for the first in the line. It asks when run, or askHere, is called.
func (cohort *lockCohort) newRequest(caller *queuedCaller, contender *lockContender) *lockContender {
	if contender == nil {
		contender = &lockContender{}
	}
	cohort.refusal = refusalInfo{}
	contender.cohort, contender.caller = cohort, caller
	contender.acquisition = acquisition{lock: caller.lock, ctx: caller.ctx, began: time.Now(),
		autoRenew: caller.autoRenew, lease: caller.promisedLease(), label: caller.terms.label, contender: contender}
	contender.canWait = caller.terms.wait != 0
	contender.own = contender.newOwner()
	cohort.contender = contender
	return contender
}

// startWait begins the wait of the request. A request that is made once has no place in the server's queue.
func (contender *lockContender) startWait(ctx context.Context) {
	lock := contender.lock
	request := wait.Request{Name: lock.name, Of: lock, Began: contender.began, QueueKey: lock.key, Manner: lock.kind.title,
		Channel: lock.channel, Mode: wait.Cohort, Taker: contender}
	if contender.canWait {
		request.Grants = lock.grantChannel()
	}
	contender.wait = lock.c.waiters.Enter(ctx, request)
}

// requestInForeground makes the first request on the goroutine of the first caller. If it is refused, another goroutine
// goes on.
func (cohorts *lockCohorts) requestInForeground(caller *queuedCaller, contender *lockContender) {
	done, err := contender.wait.Try(caller.waitsUntil)
	switch {
	case !done:
		cohorts.requestInBackground(contender)
	case wait.DidGiveUp(err):
		cohorts.mu.Lock()
		caller.endWait(nil, 0, err)
		cohorts.mu.Unlock()
		cohorts.failRequest(contender, errWithdrawn)
	default:
		cohorts.finishRequest(contender, err)
	}
}

// requestInBackground has a goroutine ask, for whoever is first in line when it is granted.
func (cohorts *lockCohorts) requestInBackground(contender *lockContender) {
	ctx := context.WithoutCancel(contender.ctx)
	if contender.wait == nil {
		contender.startWait(ctx)
	}
	contender.lock.c.session.Finish(func() { cohorts.finishRequest(contender, contender.wait.Contend(ctx)) })
}

// useCommonTerms has the request be on the terms that all callers can be given. Not called while an Ask is under way.
func (contender *lockContender) useCommonTerms() {
	client := contender.lock.c
	contender.caller, contender.autoRenew = nil, true
	contender.lease, contender.shortLease = client.opts.WatchdogTimeout, client.firstLease()
	client.engine.Longest(&contender.own.Lease, contender.lease)
}

// requestNextTenure asks for the next tenure, if anybody waits for it. Called with mu held.
func (cohorts *lockCohorts) requestNextTenure(cohort *lockCohort) {
	switch {
	case cohort.hasWaiters():
		contender := cohort.newRequest(cohort.callers.First(), nil)
		contender.useCommonTerms()
		cohorts.requestInBackground(contender)
	case cohort.own == nil && cohort.callers.First() == nil:
		cohorts.removeCohort(cohort)
	}
}

// errWithdrawn: no caller waits for the request any more.
var errWithdrawn = errors.New("no caller waits")

// Ask implements wait.Taker. It returns errWithdrawn if no caller waits for the request. A request that ends another
// owner is made all the same. After the caller has left on whose terms the request began, the request is on the terms
// of all.
func (contender *lockContender) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	cohorts, cohort := &contender.lock.c.cohorts, contender.cohort
	cohorts.mu.Lock()
	isWanted := cohort.callers.First() != nil
	hasLeft := contender.caller != nil && contender.caller.cohort != cohort
	cohorts.mu.Unlock()
	switch {
	case contender.previous != nil:
		return contender.releaseAndRequest(ctx, entry)
	case contender.replaced != nil:
	case !isWanted:
		return wait.Answer{}, errWithdrawn
	case hasLeft:
		contender.useCommonTerms()
	}
	return contender.request(ctx, entry, cohorts.sharedReadFor(contender))
}

// finishRequest takes in how the wait of a request has ended.
func (cohorts *lockCohorts) finishRequest(contender *lockContender, err error) {
	if err != nil {
		cohorts.failRequest(contender, err)
		return
	}
	if contender.handedOver { // with the first lease, whoever asked
		contender.useCommonTerms()
	}
	cohort, own := contender.cohort, contender.own
	cohorts.mu.Lock()
	contender.wait.Leave()
	contender.wait = nil
	cohorts.mu.Unlock()
	contender.stopMonitoring()
	if contender.sharedRead != nil {
		own = contender.sharedRead
		contender.own.Abandon(contender.unansweredUntil, contender.entry)
	} else {
		err = contender.startRenewal()
	}
	cohorts.mu.Lock()
	if err == nil && cohort.callers.First() != nil {
		cohorts.giveTenure(contender, own)
		cohorts.mu.Unlock()
		return
	}
	cohort.contender = nil // not to be used, or all have left
	cohorts.requestNextTenure(cohort)
	cohorts.mu.Unlock()
	if err == nil {
		own.Decline()
	}
}

// failRequest is finish of a request that was not granted.
//
//	last caller          the goroutine that asks               another caller
//	leaves: wakes it
//	                                                           comes: joins the line
//	                     wakes: goes on for that caller
//
// So the process keeps its place in the server's queue though there was a moment without callers.
func (cohorts *lockCohorts) failRequest(contender *lockContender, err error) {
	cohort, withdrawn := contender.cohort, errors.Is(err, errWithdrawn)
	cohorts.mu.Lock()
	if withdrawn && cohort.hasWaiters() && contender.canWait {
		cohorts.requestInBackground(contender)
		cohorts.mu.Unlock()
		return
	}
	cohort.contender = nil
	for caller := cohort.callers.First(); caller != nil && !withdrawn; caller = cohort.callers.First() {
		caller.endWait(nil, 0, err)
	}
	cohorts.requestNextTenure(cohort)
	cohorts.mu.Unlock()
	contender.wait.Leave()
	contender.stopMonitoring()
	_ = contender.giveUp(err) // for what it gives back: no caller waits for the error
}

// giveTenure gives the tenure to the callers in line. Called with mu held.
func (cohorts *lockCohorts) giveTenure(contender *lockContender, own *owner) {
	cohort := contender.cohort
	caller := cohort.callers.First()
	if contender.lock.kind.concurrentTurns && caller == contender.caller && !caller.canShareHold() {
		cohort.contender = nil
		caller.endWait(own, 0, nil)
		cohorts.requestNextTenure(cohort)
		return
	}
	turns, until := int32(-1), cohorts.now()+contender.lock.maxTenure()
	switch {
	case contender.lock.kind.concurrentTurns:
		until = contender.joinUntil
	case contender.transferred: // the tenure goes on
		turns, until = cohort.turnsLeft, cohort.turnsUntil
		cohorts.followingTurns++
	case contender.othersWaited:
		turns = min(cohort.callers.Len()-1, maxTurns)
	}
	cohort.setTenure(own, turns, until)
	switch {
	case contender.lock.kind.concurrentTurns:
		cohorts.admitReaders(cohort, own, contender.caller == nil || contender.caller.canShareHold())
	case caller == contender.caller, cohorts.retakeFor(own, caller): // or it was asked for on the terms of x
		cohorts.giveTurn(cohort, caller, 0)
	default:
		cohorts.transfer(cohort)
	}
}

// now is after base, and never 0.
func (cohorts *lockCohorts) now() time.Duration { return time.Since(cohorts.base) + 1 }

// countFollowingTurns returns how many turns followed another.
func (cohorts *lockCohorts) countFollowingTurns() int64 {
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	return cohorts.followingTurns
}
