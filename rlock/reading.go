package rlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Readers have their turns together. The tenure of a process is one owner, the same for all its readers, so what a
// reader costs does not grow with the readers.
//
//	reader 1                   reader 2                 the server
//	asks at t            ----------------------------->  granted, no writer waits
//	holds as X until t + window others join X unasked
//	                           joins X: no call
//	                                                     writer W queues
//	                           at t + window + 1:
//	                           asks as Y, under X  ----> W waits: Y is queued, and X takes no more readers
//	unlocks: one is left
//	                           (the last) unlocks ---->  X is released, W is served, then Y
//
// The callers that join X without a call:
//
//   - who was in line when X was granted, or confirmed: it waited for that very answer, and joins before any of the
//     others runs. The first may be through before the second is there, and X released
//     (TestReaders_Waiting_AreAdmittedTogether);
//   - who comes before the window is over, unless a writer of this process asks. The window is counted from the send of
//     the last call that was answered "no writer waits". So a writer that queues is passed for at most the window, and
//     no message has to say so. Counted from the answer's arrival it would last for as long as that was delayed. A
//     grant that came by message opens no window: it does not say who else waits.
//
// Afterwards one reader asks, under X: if no writer waits, X does for it, too, and the window begins anew. Otherwise it
// is queued with an owner of its own, Y, which is the process's next tenure.
//
// X is released by its last reader. A reader that comes between the decision to release and the request finds the count
// at 0 and asks (session.Holding.Enter): it never joins what is being given back
// (TestReader_ComesAsTheLastLeaves_HoldsTheLock).
//
// # Readers with holds of their own
//
// A fixed lease, a label and MaxHold are of one hold, so these readers have owners of their own. They wait in the same
// line, and their process has one place in the server's queue for all. The first of them asks for itself, if no request
// is under way. The others wait for an owner of the process, X, and one call then lets all of them read beside X:
//
//		readers 1 … k, with leases                         server
//		wait, in one place of the process        ------->  X is queued, and handed the lock
//		"beside X: Y1 … Yk, each with its lease" ------->  if X reads, they read
//		work, each as its own Y
//		X is released, if no other reader has it ------->
//
//	  - X does not read any more (its lease has ended, or it was forced out): nothing is done, and all wait again.
//	  - The reply is lost: the same, and Y1 … Yk have pending releases until the call cannot run any more.
//	  - Reader 3 leaves meanwhile: Y3 is released when the reply is there.
//	  - It runs twice: all read, and are let in again; their ends are only raised. X is released after the reply only.
//	  - A writer queues meanwhile: it waits for X in any case, and for these readers as for those that joined X.
//
// Readers under a write hold, and such of these that do not wait, ask alone.
const (
	minReadWindow = 2 * time.Millisecond
	maxReadWindow = 10 * time.Millisecond
	// maxBeside bounds how many readers one call lets in.
	maxBeside = 128
)

// canShareHold reports whether a reader on these terms can have the hold of others.
func (t terms) canShareHold(client *Client) bool {
	return t.lease == 0 && t.label == "" && client.opts.MaxHold == 0
}

// canShareHold reports whether the caller is a reader that can have the hold of others.
func (caller *queuedCaller) canShareHold() bool {
	return caller.lock.kind.concurrentTurns && caller.terms.canShareHold(caller.lock.c)
}

// joinSharedRead has a reader join the tenure of its process, if it may without a call. Called with mu held.
func (cohorts *lockCohorts) joinSharedRead(cohort *lockCohort) bool {
	if cohort.own == nil || cohorts.now() >= cohort.turnsUntil {
		return false
	}
	if writers := cohorts.byLock[cohortKey{cohort.lock.key, kindWrite}]; writers != nil && writers.contender != nil {
		return false
	}
	return cohorts.enterSharedRead(cohort.own)
}

// enterSharedRead counts a reader in among those of own. It reports false if that is over.
func (cohorts *lockCohorts) enterSharedRead(own *owner) bool {
	client := own.lock.c
	if client.engine.Over(&own.Lease) != nil {
		return false
	}
	if err := own.Enter(own.Turn()); err != nil {
		return false
	}
	if !client.engine.Auto(&own.Lease, client.opts.WatchdogTimeout) {
		client.session.Finish(func() { own.Retreat(time.Time{}) }) // it may be the last, and tell the cohort: mu is held
		return false
	}
	return true
}

// admitReaders has all readers in line read: by the tenure that was granted, of which one reader is counted in, or
// beside it. shared: those that share a hold can have it. Called with mu held.
func (cohorts *lockCohorts) admitReaders(cohort *lockCohort, own *owner, shared bool) {
	var beside []*queuedCaller
	entered, over := 1, false // the one that is counted in is the first reader's
	for caller := cohort.callers.First(); caller != nil && !over; {
		next := caller.Behind()
		switch {
		case !(shared && caller.canShareHold() && own.hasLabel("")):
			if len(beside) < maxBeside {
				cohort.remove(caller)
				beside = append(beside, caller)
			}
		case entered == 1 || cohorts.enterSharedRead(own):
			entered++
			cohorts.giveTurn(cohort, caller, 0)
		default:
			over = true
		}
		caller = next
	}
	switch {
	case len(beside) > 0 && (entered == 1 || own.Enter(own.Turn()) == nil):
		own.lock.c.session.Finish(func() { cohorts.admitBeside(own, beside) })
	case len(beside) > 0:
		cohorts.requeue(beside)
	}
	if cohort.callers.First() != nil && cohort.contender == nil { // it is over, or they are too many for one call
		cohorts.requestNextTenure(cohort)
	}
}

// admitBeside has readers read as owners of their own, beside one that reads and is counted in for this call.
func (cohorts *lockCohorts) admitBeside(own *owner, readers []*queuedCaller) {
	lock, client := own.lock, own.lock.c
	all := make([]*owner, len(readers))
	shortest := readers[0].promisedLease()
	for i, caller := range readers {
		all[i] = lock.newOwner(caller.ctx, caller.promisedLease(), caller.terms.label)
		shortest = min(shortest, caller.promisedLease())
	}
	var sent time.Time
	timed := script.Timed[acquireReply]{
		Key: lock.key,
		Send: func(ctx context.Context, at time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sent = at
			call := besideCall(lock, own, all, readers, notAfter)
			call.Replicas, call.ReplicasWait = client.opts.MinReplicas, client.opts.ReplicaTimeout
			call.Late = func(rueidis.RedisResult) {
				for _, own := range all {
					own.Late()
				}
			}
			return client.runner.Attempt(ctx, call)
		},
		Decode: decodeAcquire,
	}
	// Its reply is read even if the first reader leaves; the request has that reader's values, such as its span.
	reply, err := timed.Run(context.WithoutCancel(readers[0].ctx), client.runner)
	received := time.Now()
	var until time.Time // they may read by then; zero: they do not
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		until = sent.Add(timed.Runs)
	case script.IsUnreplicated(err), !client.engine.Trusted(lock.key, sent),
		!received.Before(sent.Add(shortest - lease.Margin(shortest))):
		until = received
	}
	if err == nil && reply.status == acquireGranted && until.IsZero() {
		for i, caller := range readers {
			cohorts.admitReader(caller, all[i], sent)
		}
	} else {
		for _, own := range all {
			own.Abandon(until, "")
		}
		cohorts.mu.Lock()
		cohorts.requeue(readers)
		cohorts.mu.Unlock()
	}
	own.Decline()
}

// admitReader gives a reader the hold that it was granted, or has that released if it has left.
func (cohorts *lockCohorts) admitReader(caller *queuedCaller, own *owner, sent time.Time) {
	client := own.lock.c
	added := client.engine.Add(&own.Lease, sent, sent, caller.promisedLease(), caller.autoRenew, client.opts.MaxHold)
	err := own.Keep(added, time.Time{}, "")
	cohorts.mu.Lock()
	hasLeft := caller.hasLeft
	if !hasLeft && err == nil {
		caller.endWait(own, 0, nil)
	} else if !hasLeft {
		cohorts.requeue([]*queuedCaller{caller})
	}
	cohorts.mu.Unlock()
	if hasLeft && err == nil {
		own.Decline()
	}
}

// requeue puts readers back into the line, before those that came later. Called with mu held.
func (cohorts *lockCohorts) requeue(readers []*queuedCaller) {
	lock := readers[0].lock
	cohort := cohorts.byLock[cohortKey{lock.key, lock.kind}]
	if cohort == nil {
		cohort = cohorts.addCohort(lock)
		cohort.refusal = readers[0].refusal
	}
	for _, caller := range slices.Backward(readers) {
		if !caller.hasLeft {
			cohort.enqueue(caller, true)
		}
	}
	if cohort.contender == nil {
		cohorts.requestNextTenure(cohort)
	}
}

// sharedReadFor is the tenure under which a reader asks; nil: none.
func (cohorts *lockCohorts) sharedReadFor(contender *lockContender) *owner {
	if !contender.lock.kind.concurrentTurns || contender.caller != nil && !contender.caller.canShareHold() {
		return nil
	}
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	if own := contender.cohort.own; own != nil && own.Lasts() && contender.lock.c.engine.Over(&own.Lease) == nil {
		return own
	}
	return nil
}

// openReadWindow notes for how long others may join what was granted to a reader by the call that it sent last. It is
// four round trips: a reader of four then waits for an answer, however far the server is, and a writer waits little
// longer.
func (a *acquisition) openReadWindow(unclaimed bool, received time.Time) {
	if a.contender != nil && a.lock.kind.concurrentTurns && unclaimed {
		window := min(max(4*received.Sub(a.sentAt), minReadWindow), maxReadWindow)
		a.contender.joinUntil = a.sentAt.Add(window).Sub(a.lock.c.cohorts.base)
	}
}

// besideCall has readers read beside one of their process.
func besideCall(lock *single, beside *owner, all []*owner, readers []*queuedCaller, notAfter int64) script.Call {
	client := lock.c
	keys, args := slices.Clone(lock.keys), make([]string, 0, 8+2*len(all))
	args = append(args, beside.Lease.Owner, lock.c.watchdogMillis, strconv.FormatInt(notAfter, 10), lock.channel, "", "",
		client.publish, lock.grants, "")
	for i, own := range all {
		keys = append(keys, timeoutKey(lock.key, own.Lease.Owner, 1))
		args = append(args, own.Lease.Owner, client.millis(readers[i].promisedLease()))
	}
	return script.Call{Script: rwReadScript, Keys: keys, Args: args}
}
