package rlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// The server sees one owner per process, and the callers of the process take turns with the lock (lock cohorting: Dice,
// Marathe and Shavit, PPoPP 2012). A cohort is the callers of a client for one lock whose waiters queue. It has one
// tenure at a time: one owner, one lease, and one entry in the server's queue. Its callers wait for their turns in a
// local queue. They join and leave the local queue without a call.
//
//	                 refused: a goroutine waits in the server's queue
//	                  +-----+
//	                  |     v              granted
//	first caller --> requested -------------------> held: turns follow each other, without a call
//	                  |  ^                          |        |
//	the last caller   |  |   limit reached, and     |        | the last turn ends
//	leaves            v  +---- callers wait --------+        v
//	           withdrawing     one call releases, and      released
//	                           queues the next tenure
//
//	caller A             caller B            server
//	requests the lock  ------------------->  granted: the process's owner is X
//	works, as X
//	                     waits here
//	Unlock: its turn
//	ends; no call
//	                     works, as X
//	                     Unlock  --------->  X is released
//
// The rules:
//
//  1. A turn belongs to one caller. Contexts and handles carry the turn, not only the owner. A context that was kept
//     from an earlier turn re-enters nothing: it gets ErrLost although the same owner still holds the lock.
//  2. The caller that takes a turn checks the clock again, because time passes between giveTurn and takeTurn. The
//     tenure ends, and the next one is requested, if the caller's context has ended, if less than a quarter of the
//     lease is left, or if the time for new turns is over.
//  3. Turns follow each other for 20 ms from the grant on. Their number is limited if other processes were queued at
//     the grant, or may have been: to the number of callers that waited here, and to 32. When a limit is reached, one
//     call releases the tenure and puts the next tenure into the server's queue, behind the processes that wait. If
//     none waits, the same call grants the lock anew. So no process has to send a message that it waits, and no such
//     message can be lost.
//  4. The options of a caller (lease, label, MaxHold) are applied when its turn begins: see transfer.go. So a request
//     belongs to the process, and not to the caller with whose options it began.
//  5. The end of a tenure, for any reason, ends the current turn. The waiting callers stay in the local queue, and the
//     next tenure is requested.
//  6. The first request runs on the goroutine of the first caller, and ends when that caller gives up. Only after a
//     refusal do the waits of the cohort and of the caller begin: a goroutine of the process sends the requests, and
//     all callers wait for their turns. The last caller that leaves withdraws the request. A caller that comes before
//     the request has ended takes it over. Each reply is read, so a grant without a waiting caller is released as soon
//     as the process knows of it.
//  7. A release that requests the next tenure counts as a request of that tenure. Until its reply, or its not-after, no
//     reply to a release of the next tenure's owner is final.
//
// A loss (DEL, FLUSHALL) is noticed by tracking, by a renewal, or at the end of the tenure. So turns may begin for 20
// ms after a loss.

const (
	// maxTenure and maxTurns limit how long a lock stays within a process.
	maxTenure = 20 * time.Millisecond
	maxTurns  = 32
	// spareCohorts limits the number of cohorts that are kept for reuse.
	spareCohorts = 64
)

// lockCohorts is the cohorts of a client.
type lockCohorts struct {
	mu             sync.Mutex
	base           time.Time // the instant from which durations such as turnsUntil count
	byLock         map[cohortKey]*lockCohort
	spare          []*lockCohort // for reuse, because most cohorts last for a moment
	followingTurns int64         // turns that began without a call, after another turn
}

type cohortKey struct {
	key  string
	kind *kind // a Reentrant and a Fenced lock of one name have two cohorts, which wait for each other on the server
}

// lockCohort is the callers of a client for one lock, and the state of their tenure. Guarded by lockCohorts.mu.
//
// Either own or contender is set. A lock for reading may have both, because a contender queues while readers still hold
// the lock. A held lock without a waiting caller has no cohort, because holding a lock must cost little: adoptHeldLock
// finds its owner in the watchdog's map. A lock for reading keeps its cohort.
type lockCohort struct {
	lock       *single
	callers    wait.List[*queuedCaller] // the local queue
	turnsLeft  int32                    // the turns that may still follow; negative: any number. Kept during a transfer
	turnsUntil time.Duration            // after lockCohorts.base; no turn begins, and no reader joins, later
	own        *owner                   // holds the lock; nil: the client does not hold it
	contender  *lockContender           // requests the lock; nil: no request is in progress
	refusal    refusalInfo              // of the contender's last request, for callers that give up
}

func (cohort *lockCohort) key() cohortKey { return cohortKey{cohort.lock.key, cohort.lock.kind} }

// hasWaiters reports whether a caller waits for a turn. Callers that only wait for the end of a closed client do not
// count.
func (cohort *lockCohort) hasWaiters() bool {
	return cohort.callers.First() != nil && cohort.lock.c.waiters.Ended(context.Background()) == nil
}

// hasCallers reports whether callers request the lock, or wait for it.
func (cohorts *lockCohorts) hasCallers(lock *single) bool {
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	cohort := cohorts.byLock[cohortKey{lock.key, lock.kind}]
	return cohort != nil && cohort.callers.First() != nil
}

// queuedCaller is one call that waits for its turn. Guarded by lockCohorts.mu from enqueue on.
type queuedCaller struct {
	wait.Links[*queuedCaller]
	lock       *single
	ctx        context.Context
	began      time.Time
	waitsUntil time.Time // the caller gives up at this instant; zero: only ctx limits the wait
	terms      terms

	cohort  *lockCohort // nil: the caller is not in a local queue
	wait    *wait.Caller
	waited  bool // the caller has waited for others
	watch   *deadlockWatch
	hasLeft bool // the caller gave up while admitBeside requested its hold: see reading.go

	// The end of the wait: a turn or an error.
	own     *owner        // the owner of the turn; nil: no turn
	takeBy  time.Duration // after lockCohorts.base; the turn must be taken before; 0: no limit (the first turn)
	refusal refusalInfo
	err     error
}

// promisedLease returns the full lease that the caller was promised.
func (caller *queuedCaller) promisedLease() time.Duration {
	return caller.lock.c.holdTerms(caller.terms).lease
}

// lockContender is one request for a tenure. It has an owner of its own.
type lockContender struct {
	acquisition
	cohort *lockCohort
	wait   *wait.Caller  // nil: the wait has not begun, or the request was granted
	caller *queuedCaller // the caller whose options the request has; nil: the options that suit all callers

	previous       *owner             // the last tenure, which the first request releases; nil: none
	releaseResults chan releaseResult // receives the result of that release
	repeats        int                // the requests repeated so far by repeatIn
	othersWaited   bool               // other processes may have been queued at the grant

	// Of a contender for reading.
	sharedRead *owner        // the tenure of this process that the server let the new reader share; nil: none
	joinUntil  time.Duration // after lockCohorts.base: other readers may join the granted hold before this
}

// callerWaits reports whether the caller with whose options the request began is still in the local queue. Called with
// mu held.
func (contender *lockContender) callerWaits() bool {
	return contender.caller != nil && contender.caller.cohort == contender.cohort
}

// releaseResult is the result of a release that was sent together with the request for the next tenure.
type releaseResult struct {
	status releaseStatus
	err    error
}

// acquire waits for a turn, and makes the caller's hold.
func (cohorts *lockCohorts) acquire(ctx context.Context, lock *single, began time.Time,
	opts terms) (hold *Hold, last refusalInfo, err error) {
	arriving := queuedCaller{lock: lock, ctx: ctx, began: began, terms: opts}
	if opts.wait != forever {
		arriving.waitsUntil = began.Add(opts.wait)
	}
	var caller *queuedCaller
	for { // again if the caller could not use its turn
		cohorts.mu.Lock()
		cohort := cohorts.cohortOf(lock)
		requests := cohort.contender == nil && (cohort.own == nil || lock.kind.waiting.concurrentTurns)
		hadTurn := caller != nil
		var room *lockContender
		if !hadTurn {
			caller, room = arriving.onHeap(requests)
		}
		switch {
		case cohort.own != nil && cohort.own.once.hasOldAnswer(): // granted after the caller had looked for an answer
			caller.err = &wait.Published{Result: cohort.own.once.oldAnswer, Since: time.Now()}
			if cohort.callers.First() == nil {
				cohorts.removeCohort(cohort)
			}
			cohorts.mu.Unlock()
		case cohort.contender == nil && caller.canShareHold() && cohorts.joinSharedRead(cohort):
			caller.own, caller.takeBy, caller.err = cohort.own, 0, nil
			cohorts.mu.Unlock()
		case requests:
			contender := cohort.newRequest(caller, room)
			cohort.addCaller(caller, false)
			cohorts.mu.Unlock()
			cohorts.requestInForeground(caller, contender)
		case opts.wait == 0: // another caller's request is in progress, so this caller sends a request of its own
			cohorts.mu.Unlock()
			return lock.acquireAlone(ctx, began, opts, carriedOwner{})
		default:
			cohort.enqueue(caller, hadTurn)
			cohorts.mu.Unlock()
			lock.listenForGrants()
		}
		if err = cohorts.awaitTurn(caller); err != nil {
			return nil, caller.seen(), err
		}
		if hold, err = cohorts.takeTurn(caller); hold != nil || err != nil {
			return hold, caller.seen(), err
		}
	}
}

// BeginWait implements wait.Watcher.
func (caller *queuedCaller) BeginWait(waiter *wait.Caller) {
	caller.waited = true
	if caller.watch != nil { // the caller could not use its turn
		caller.watch.setGiveUp(waiter.GiveUp())
		return
	}
	caller.watch = caller.lock.watchForDeadlock(caller.ctx, caller.began, caller.terms.beside, waiter)
}

// seen returns what the caller knows of the requests that were refused to it.
func (caller *queuedCaller) seen() refusalInfo {
	seen := caller.refusal
	seen.waited, seen.watch = caller.waited, caller.watch
	return seen
}

// onHeap returns a copy of the caller, and memory for its contender, in one allocation. Without a request of its own
// the caller only waits, and many do, so that it gets a third of the memory.
func (caller *queuedCaller) onHeap(requests bool) (*queuedCaller, *lockContender) {
	if !requests {
		waiting := *caller
		return &waiting, nil
	}
	both := &struct {
		caller    queuedCaller
		contender lockContender
	}{caller: *caller}
	return &both.caller, &both.contender
}

// listenForGrants subscribes to the grants of this process, unless a channel of grants serves one key only.
func (l *single) listenForGrants() {
	if !l.c.clustered {
		l.c.waiters.Listen(l.grantChannel())
	}
}

// cohortOf returns the cohort of a lock, and makes it if there is none. Called with mu held.
func (cohorts *lockCohorts) cohortOf(lock *single) *lockCohort {
	if cohort := cohorts.byLock[cohortKey{lock.key, lock.kind}]; cohort != nil {
		return cohort
	}
	if cohort := cohorts.adoptHeldLock(lock); cohort != nil {
		return cohort
	}
	return cohorts.addCohort(lock)
}

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

// maxTenure returns how long turns may follow each other from the grant on.
func (l *single) maxTenure() time.Duration {
	if l.kind.waiting.tenureLength != nil {
		return l.kind.waiting.tenureLength(l)
	}
	return maxTenure
}

// adoptHeldLock makes the cohort of a lock that this client holds without waiting callers. It returns nil if the client
// does not hold the lock, or if its owner is never given to another caller. Called with mu held.
//
// An owner that is being released at this moment is either found or not found:
//   - If it is found, the cohort is notified at its end, by endTenure or Gone.
//   - If it is not found, the cohort needs no notification. The session removes an owner from the watchdog before it
//     sends the release. It also ends a holding before it calls Gone, and Gone waits for mu.
func (cohorts *lockCohorts) adoptHeldLock(lock *single) *lockCohort {
	if lock.kind.waiting.concurrentTurns {
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

// setTenure makes own the cohort's tenure. Called with mu held.
func (cohort *lockCohort) setTenure(own *owner, turns int32, until time.Duration) {
	cohort.contender, cohort.own, cohort.turnsLeft, cohort.turnsUntil = nil, own, turns, until
	own.turnsUntil = until
}

// cohortOfTenure returns the cohort whose tenure own is; nil if there is none. Called with mu held.
func (cohorts *lockCohorts) cohortOfTenure(own *owner) *lockCohort {
	cohort := cohorts.byLock[cohortKey{own.lock.key, own.lock.kind}]
	if cohort == nil || cohort.own != own {
		return nil
	}
	return cohort
}

// removeCohort ends a cohort without callers. Called with mu held.
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

// enqueue puts a caller into the local queue, and begins its wait. The caller becomes the last, or the first if front
// is set.
func (cohort *lockCohort) enqueue(caller *queuedCaller, front bool) {
	cohort.addCaller(caller, front)
	caller.startWait(cohort.own)
}

// addCaller puts a caller into the local queue: as the last, or as the first if front is set.
func (cohort *lockCohort) addCaller(caller *queuedCaller, front bool) {
	caller.cohort, caller.own, caller.err = cohort, nil, nil
	cohort.callers.Add(caller, front)
}

// startWait begins the caller's wait, unless it has begun. own is the tenure of the process; nil: none.
func (caller *queuedCaller) startWait(own *owner) {
	if caller.wait != nil { // admitBeside took the reader out of the local queue, and did not admit it
		return
	}
	lock := caller.lock
	request := wait.Request{Name: lock.name, Object: lock, Began: caller.began, Until: caller.waitsUntil,
		QueueKey: lock.key, QueueClass: lock.kind.title, Mode: wait.Turn, Watcher: caller, Reported: caller.waited}
	if own != nil && !lock.kind.waiting.concurrentTurns {
		request.FreeBy = lock.c.engine.Until(&own.Lease)
	}
	caller.wait = lock.c.waiters.Enter(caller.ctx, request)
}

// remove takes a caller out of the local queue.
func (cohort *lockCohort) remove(caller *queuedCaller) {
	cohort.callers.Remove(caller)
	caller.cohort, caller.refusal = nil, cohort.refusal
}

// newRequest makes the contender for caller, the first in the local queue. requestInForeground or requestInBackground
// sends its requests.
func (cohort *lockCohort) newRequest(caller *queuedCaller, contender *lockContender) *lockContender {
	if contender == nil {
		contender = &lockContender{}
	}
	cohort.refusal = refusalInfo{}
	contender.cohort, contender.caller = cohort, caller
	contender.acquisition = acquisition{lock: caller.lock, ctx: caller.ctx, began: time.Now(),
		wanted: caller.lock.c.holdTerms(caller.terms), contender: contender}
	contender.canWait = caller.terms.wait != 0
	contender.own = contender.newOwner()
	cohort.contender = contender
	return contender
}

// startWait registers the contender's wait. A contender that sends one request only gets no entry in the server's
// queue.
func (contender *lockContender) startWait(ctx context.Context) {
	lock := contender.lock
	request := wait.Request{Name: lock.name, Object: lock, Began: contender.began, QueueKey: lock.key,
		QueueClass: lock.kind.title, Channel: lock.channel, Mode: wait.Cohort, Taker: contender}
	if contender.canWait {
		request.Grants = lock.grantChannel()
	}
	contender.wait = lock.c.waiters.Enter(ctx, request)
}

// requestInForeground sends the first request on the goroutine of the first caller. After a refusal the caller waits,
// and another goroutine continues.
//
// Most locks are free, so the waits of the contender and of the caller begin only after a refusal, unless the contender
// has to be woken before that: see SubscribesFirst.
func (cohorts *lockCohorts) requestInForeground(caller *queuedCaller, contender *lockContender) {
	began, waiters := time.Now(), contender.lock.c.waiters
	waitsFirst := contender.canWait && !waiters.SubscribesFirst(contender.lock.grantChannel())
	var answer wait.Answer
	var err error
	if !waitsFirst {
		answer, err = contender.request(caller.ctx, nil, cohorts.sharedReadFor(contender))
		switch {
		case err == nil && answer.Granted:
			waiters.Silence.RecordAnswer(&wait.Request{Name: contender.lock.name, QueueKey: contender.lock.key})
			cohorts.finishRequest(contender, nil)
			return
		case err != nil && !script.NotAnswered(err):
			cohorts.finishRequest(contender, err)
			return
		}
	}
	cohorts.mu.Lock()
	contender.startWait(caller.ctx)
	cohorts.mu.Unlock()
	var done bool
	if waitsFirst {
		done, err = contender.wait.Try(caller.waitsUntil)
	} else {
		done, err = contender.wait.Tried(caller.waitsUntil, began, answer, err)
	}
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

// requestInBackground starts a goroutine that requests the tenure, for the caller that is first in the local queue at
// the grant.
func (cohorts *lockCohorts) requestInBackground(contender *lockContender) {
	ctx := context.WithoutCancel(contender.ctx)
	if contender.wait == nil {
		contender.startWait(ctx)
	}
	contender.lock.c.session.Finish(func() { cohorts.finishRequest(contender, contender.wait.Contend(ctx)) })
}

// useCommonTerms gives the request the options that suit all callers. Not called while a request is in progress.
func (contender *lockContender) useCommonTerms() {
	client := contender.lock.c
	contender.caller = nil
	contender.wanted = holdTerms{lease: client.opts.WatchdogTimeout, shortLease: client.firstLease(),
		label: contender.wanted.label, autoRenew: true}
	client.engine.Longest(&contender.own.Lease, contender.wanted.lease)
}

// requestNextTenure requests the next tenure if a caller waits for it. Called with mu held.
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

// Ask implements wait.Taker. It returns errWithdrawn if no caller waits for the request. A request that releases the
// previous tenure, or replaces an owner, is sent even then, because it ends that owner. If the caller with whose
// options the request began has left, the request continues with the options that suit all callers.
func (contender *lockContender) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	cohorts, cohort := &contender.lock.c.cohorts, contender.cohort
	cohorts.mu.Lock()
	isWanted := cohort.callers.First() != nil
	hasLeft := contender.caller != nil && !contender.callerWaits()
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

// finishRequest handles the end of a contender's wait: a grant, or err.
func (cohorts *lockCohorts) finishRequest(contender *lockContender, err error) {
	if err != nil {
		cohorts.failRequest(contender, err)
		return
	}
	if contender.grant.writtenLease > 0 { // a hand-over writes the short first lease, with any caller's options
		contender.useCommonTerms()
	}
	cohort, own := contender.cohort, contender.own
	if contender.wait != nil {
		cohorts.mu.Lock()
		contender.wait.Leave()
		contender.wait = nil
		cohorts.mu.Unlock()
	}
	contender.stopMonitoring()
	if contender.sharedRead != nil {
		own = contender.sharedRead
		contender.own.Abandon(contender.times.unansweredUntil, contender.entry)
	} else {
		err = contender.startRenewal()
	}
	cohorts.mu.Lock()
	if err == nil && own.once.hasOldAnswer() {
		cohort.answerCallers(wait.Published{Result: own.once.oldAnswer, Since: time.Now()}, cohort.callers.First())
	}
	if err == nil && cohort.callers.First() != nil {
		isUsed := cohorts.giveTenure(contender, own)
		cohorts.mu.Unlock()
		if !isUsed {
			own.Decline()
		}
		return
	}
	cohort.contender = nil // the grant cannot be used, or all callers have left
	cohorts.requestNextTenure(cohort)
	cohorts.mu.Unlock()
	if err == nil {
		own.Decline()
	}
}

// failRequest handles the end of a request that was not granted. A caller may come between a withdrawal and its
// handling:
//
//	last caller           the requesting goroutine             another caller
//	leaves: wakes the
//	goroutine
//	                                                           comes: joins the local queue
//	                      wakes: continues for that caller
//
// The goroutine then continues, so the process keeps its entry in the server's queue.
func (cohorts *lockCohorts) failRequest(contender *lockContender, err error) {
	cohort, withdrawn := contender.cohort, errors.Is(err, errWithdrawn)
	contender.isAnswered = isAnswered(err)
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
	if contender.wait != nil {
		contender.wait.Leave() // may call ReleaseLater, which locks mu
	}
	contender.stopMonitoring()
	_ = contender.giveUp(err) // giveUp releases what may have been granted; no caller waits for its error
}

// giveTenure gives the granted tenure, which own holds, to the callers in the local queue. It returns false if the
// tenure must end at once. Called with mu held.
//
// A transferred hold is given to the caller for whom it was transferred, if that caller still waits. Another caller may
// need another transfer. Transfers end with the time for new turns, too.
func (cohorts *lockCohorts) giveTenure(contender *lockContender, own *owner) (isUsed bool) {
	cohort := contender.cohort
	caller := cohort.callers.First()
	if contender.grant.transferred && contender.callerWaits() {
		caller = contender.caller
	}
	if contender.lock.kind.waiting.concurrentTurns && caller == contender.caller && !caller.canShareHold() {
		cohort.contender = nil
		caller.endWait(own, 0, nil)
		cohorts.requestNextTenure(cohort)
		return true
	}
	turns, until := int32(-1), cohorts.now()+contender.lock.maxTenure()
	switch {
	case contender.lock.kind.waiting.concurrentTurns:
		until = contender.joinUntil
	case contender.grant.transferred: // the same tenure, as another owner
		turns, until = cohort.turnsLeft, cohort.turnsUntil
		cohorts.followingTurns++
	case contender.othersWaited:
		turns = min(cohort.callers.Len()-1, maxTurns)
	}
	cohort.setTenure(own, turns, until)
	switch {
	case contender.lock.kind.waiting.concurrentTurns:
		cohorts.admitReaders(cohort, own, contender.caller == nil || contender.caller.canShareHold())
	case caller == contender.caller, cohorts.retakeFor(own, caller):
		cohorts.giveTurn(cohort, caller, 0)
	case contender.grant.transferred && cohorts.isOver(cohort):
		return false
	default:
		return cohorts.transfer(cohort)
	}
	return true
}

// now returns the time since base. It is never 0.
func (cohorts *lockCohorts) now() time.Duration { return time.Since(cohorts.base) + 1 }

// countFollowingTurns returns the number of turns that began without a call, after another turn.
func (cohorts *lockCohorts) countFollowingTurns() int64 {
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	return cohorts.followingTurns
}
