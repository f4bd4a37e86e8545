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

// The readers of a process have their turns at the same time. Their tenure is one owner for all of them, so the cost of
// reading does not grow with the number of readers.
//
//	reader 1                   reader 2                 server
//	requests at t        ----------------------------->  granted, no writer waits
//	holds as X until t + window others join X without a call
//	                           joins X: no call
//	                                                     writer W queues
//	                           at t + window + 1:
//	                           requests as Y,
//	                           sharing X           ----> W waits: Y is queued, and X takes no more readers
//	unlocks: one reader is left
//	                           (the last) unlocks ---->  X is released, W is served, then Y
//
// Two groups of callers join X without a call:
//
//   - The callers in the local queue when X was granted, or confirmed. All of them join before any of them runs.
//     Otherwise the first reader could finish, and X be released, before the second reader joins
//     (TestReaders_Waiting_AreAdmittedTogether).
//   - The callers that come within the window, unless a writer of this process requests the lock. The window counts
//     from the send of the last request with the reply "no writer waits". So readers overtake a queued writer for at
//     most the window, and no message has to report the writer. If the window counted from the arrival of the reply, it
//     would last longer by the delay of the reply. A grant that came by a message opens no window, because it does not
//     say who else waits.
//
// After the window one reader sends a request that shares X. If no writer waits, the reader joins X, and a new window
// begins. Otherwise the reader is queued as an owner of its own, Y, which is the process's next tenure.
//
// The last reader of X releases it. A reader that comes between the decision to release and the release request finds
// the count at 0, and sends a request (hold.Holding.Enter). So no reader joins a hold that is being released
// (TestReader_ComesAsTheLastLeaves_HoldsTheLock).
//
// # Readers with holds of their own
//
// A fixed lease, a label and MaxHold belong to one hold, so readers with one of these have owners of their own. All
// readers wait in the same local queue, and their process has one entry in the server's queue for all. The first of
// them requests its own owner's hold, if no request is in progress. The others wait for an owner of the process, X.
// Then one call admits all of them beside X:
//
//		readers 1 … k, with leases                         server
//		wait, in one entry of the process        ------->  X is queued, and handed the lock
//		"beside X: Y1 … Yk, each with its lease" ------->  if X reads, Y1 … Yk read
//		work, each as its own Y
//		X is released, if no other reader shares it ---->
//
//	  - X does not read any more (its lease has ended, or it was forced out): the call does nothing, and all readers wait
//	    again.
//	  - The reply is lost: all readers wait again, and Y1 … Yk have pending releases until the call cannot run any more.
//	  - Reader 3 leaves meanwhile: Y3 is released after the reply.
//	  - The call runs twice: all owners read already, and are admitted again. Leases are only raised. X is released after
//	    the reply only.
//	  - A writer queues meanwhile: the writer waits for X in any case, and for these readers like for the readers that
//	    joined X.
//
// Readers under a write hold, and readers with a hold of their own that do not wait, send requests of their own.

const (
	// minReadWindow and maxReadWindow limit the window in which readers join a hold without a call.
	minReadWindow = 2 * time.Millisecond
	maxReadWindow = 10 * time.Millisecond
	// maxBeside limits the number of readers that one call admits.
	maxBeside = 128
)

// canShareHold reports whether a reader with these options can share a hold with other readers.
func (t terms) canShareHold(client *Client) bool {
	return t.lease == 0 && t.label == "" && client.opts.MaxHold == 0
}

// canShareHold reports whether the caller is a reader that can share a hold with other readers.
func (caller *queuedCaller) canShareHold() bool {
	return caller.lock.kind.waiting.concurrentTurns && caller.terms.canShareHold(caller.lock.c)
}

// joinSharedRead adds a reader to the tenure of its process, and reports whether the reader could join without a call.
// Called with mu held.
func (cohorts *lockCohorts) joinSharedRead(cohort *lockCohort) bool {
	if cohort.own == nil || cohorts.now() >= cohort.turnsUntil {
		return false
	}
	if writers := cohorts.byLock[cohortKey{cohort.lock.key, kindWrite}]; writers != nil && writers.contender != nil {
		return false
	}
	return cohorts.enterSharedRead(cohort.own)
}

// enterSharedRead adds a reader to the count of own's readers, and reports whether own's hold still lasts.
func (cohorts *lockCohorts) enterSharedRead(own *owner) bool {
	client := own.lock.c
	if client.engine.Over(&own.Lease) != nil {
		return false
	}
	if err := own.Enter(own.Turn()); err != nil {
		return false
	}
	if !client.engine.Auto(&own.Lease, client.opts.WatchdogTimeout) {
		// In the background, because the retreat of the last reader calls Gone, which locks mu.
		client.session.Finish(func() { own.Retreat(time.Time{}) })
		return false
	}
	return true
}

// admitReaders gives turns to all readers in the local queue. A reader that can share a hold shares own's hold, if
// mayShare is set. The other readers get owners of their own, beside own. Called with mu held.
func (cohorts *lockCohorts) admitReaders(cohort *lockCohort, own *owner, mayShare bool) {
	var beside []*queuedCaller
	entered, hasEnded := 1, false // own is granted with a count of 1, for the first reader that shares it
	for caller := cohort.callers.First(); caller != nil && !hasEnded; {
		next := caller.Behind()
		switch {
		case !(mayShare && caller.canShareHold() && own.hasLabel("")):
			if len(beside) < maxBeside {
				cohort.remove(caller)
				beside = append(beside, caller)
			}
		case entered == 1 || cohorts.enterSharedRead(own):
			entered++
			cohorts.giveTurn(cohort, caller, 0)
		default:
			hasEnded = true
		}
		caller = next
	}
	switch {
	case len(beside) > 0 && (entered == 1 || own.Enter(own.Turn()) == nil):
		own.lock.c.session.Finish(func() { cohorts.admitBeside(own, beside) })
	case len(beside) > 0:
		cohorts.requeue(beside)
	}
	if cohort.callers.First() != nil && cohort.contender == nil { // own has ended, or one call cannot admit all readers
		cohorts.requestNextTenure(cohort)
	}
}

// admitBeside acquires owners for readers with holds of their own, beside own. own has a count for this call, so it
// reads until the call ends.
func (cohorts *lockCohorts) admitBeside(own *owner, readers []*queuedCaller) {
	lock, client := own.lock, own.lock.c
	owners := make([]*owner, len(readers))
	shortest := readers[0].promisedLease()
	for i, caller := range readers {
		owners[i] = lock.newOwner(caller.ctx, caller.promisedLease(), caller.terms.label)
		shortest = min(shortest, caller.promisedLease())
	}
	var sent time.Time
	timed := script.Timed[acquireReply]{
		Key: lock.key,
		Send: func(ctx context.Context, at time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sent = at
			call := besideCall(lock, own, owners, readers, notAfter)
			call.Replicas, call.ReplicasWait = client.opts.MinReplicas, client.opts.ReplicaTimeout
			call.Late = func(rueidis.RedisResult) {
				for _, reader := range owners {
					reader.Late()
				}
			}
			return client.runner.Attempt(ctx, call)
		},
		Decode: decodeAcquire,
	}
	// The reply is read even if the first reader leaves. The request has the first reader's context values, such as its
	// span.
	reply, err := timed.Run(context.WithoutCancel(readers[0].ctx), client.runner)
	received := time.Now()
	var possibleUntil time.Time // without a usable grant the new owners may read until this; zero: no owner reads
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		possibleUntil = sent.Add(timed.Runs)
	case script.IsUnreplicated(err), !client.engine.Trusted(lock.key, sent),
		!received.Before(sent.Add(shortest - lease.Margin(shortest))):
		possibleUntil = received
	}
	if err == nil && reply.status == acquireGranted && possibleUntil.IsZero() {
		for i, caller := range readers {
			cohorts.admitReader(caller, owners[i], sent)
		}
	} else {
		for _, reader := range owners {
			reader.Abandon(possibleUntil, "")
		}
		cohorts.mu.Lock()
		cohorts.requeue(readers)
		cohorts.mu.Unlock()
	}
	own.Decline()
}

// admitReader gives a reader the hold that was granted to it. If the reader has left, admitReader releases the hold.
func (cohorts *lockCohorts) admitReader(caller *queuedCaller, own *owner, sent time.Time) {
	client := own.lock.c
	added := client.engine.Add(&own.Lease, sent, sent, caller.promisedLease(), caller.terms.autoRenew(),
		client.opts.MaxHold)
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

// requeue puts readers back into the local queue, before the readers that came later. Called with mu held.
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

// sharedReadFor returns the tenure that a reader's request asks to share; nil: none.
func (cohorts *lockCohorts) sharedReadFor(contender *lockContender) *owner {
	if !contender.lock.kind.waiting.concurrentTurns || contender.caller != nil && !contender.caller.canShareHold() {
		return nil
	}
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	if own := contender.cohort.own; own != nil && own.Lasts() && contender.lock.c.engine.Over(&own.Lease) == nil {
		return own
	}
	return nil
}

// openReadWindow sets how long other readers may join the hold that the last request granted to a reader. The window is
// four round trips. So a reply is awaited for about a quarter of the time, however far away the server is, and a writer
// waits little longer.
func (a *acquisition) openReadWindow(unclaimed bool, received time.Time) {
	if a.contender != nil && a.lock.kind.waiting.concurrentTurns && unclaimed {
		window := min(max(4*received.Sub(a.times.sentAt), minReadWindow), maxReadWindow)
		a.contender.joinUntil = a.times.sentAt.Add(window).Sub(a.lock.c.cohorts.base)
	}
}

// besideCall returns the call that lets readers read as owners, beside an owner of their process.
func besideCall(lock *single, beside *owner, owners []*owner, readers []*queuedCaller, notAfter int64) script.Call {
	client := lock.c
	keys, args := slices.Clone(lock.keys), make([]string, 0, 8+2*len(owners))
	args = append(args, beside.Lease.Owner, lock.c.watchdogMillis, strconv.FormatInt(notAfter, 10), lock.channel, "", "",
		client.publish, lock.grants, "")
	for i, own := range owners {
		keys = append(keys, timeoutKey(lock.key, own.Lease.Owner, 1))
		args = append(args, own.Lease.Owner, client.millis(readers[i].promisedLease()))
	}
	return script.Call{Script: rwReadScript, Keys: keys, Args: args}
}
