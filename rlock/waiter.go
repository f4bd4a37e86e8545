package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// QueueEntry implements wait.Taker.
func (a *acquisition) QueueEntry(crowd bool) wait.QueueEntry {
	client := a.lock.c
	if a.possibleSince.IsZero() { // from here on a release may name this owner, before it has asked
		a.possibleSince = time.Now()
	}
	poll := min(client.opts.PollCap, wait.MaxPoll)
	first := min(a.lease, client.shortLease())
	if a.contender != nil {
		first = client.firstLease()
	}
	if crowd && a.lock.kind.pollsRarely && client.monitor == nil {
		// With Liveness a waiter needs a reply for each heartbeat: see answerRefusal.
		poll = wait.MaxPoll
	}
	return wait.QueueEntry{Owner: a.own.Lease.Owner, Lease: a.requestedLease(), Poll: poll,
		Entry: a.lock.kind.queueEntry(a, poll, first)}
}

// Taken implements wait.Taker. It refuses to use a grant unconfirmed if replicas are to be asked or a token is to be
// minted, if half of its lease is over, and if its lease is short and is not raised. Asking again confirms such
// a grant, and its lease counts anew.
func (a *acquisition) Taken(grant wait.Grant) bool {
	switch {
	case a.lock.c.opts.MinReplicas > 0, a.lock.kind.confirmsGrants:
		return false // the acquire itself confirms: it finds its own field, and mints the token for a holder that is there
	case a.contender == nil && !a.autoRenew && grant.Ticket > 0 && grant.Lease >= a.lease:
		return false // a lease that is not raised later is to be all there from now on
	case !a.lock.c.engine.Trusted(a.lock.key, grant.Sent):
		return false
	case time.Until(grant.Sent.Add(grant.Lease)) < grant.Lease/2:
		return false
	}
	a.sentAt, a.writtenLease, a.handedOver = grant.Sent, grant.Lease, grant.Ticket > 0
	a.recordContention(true)
	return true
}

// ReleaseLater implements wait.Taker.
func (a *acquisition) ReleaseLater(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	if after.After(a.unansweredUntil) {
		a.unansweredUntil = after
	}
	if contender := a.contender; contender != nil {
		cohorts := &a.lock.c.cohorts
		cohorts.mu.Lock()
		defer cohorts.mu.Unlock()
		if contender.cohort.contender == contender {
			contender.cohort.refusal.outcomeUnknown = true
		}
	}
}

// Ask implements wait.Taker: it asks the server once.
func (a *acquisition) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	return a.request(ctx, entry, nil)
}

// requestFailed notes until when a request that failed with err may still take something.
func (a *acquisition) requestFailed(err error, received time.Time) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		a.ReleaseLater(a.lastRunAt)
	case script.BrokenOff(err): // it may have left a lock without an end
		a.ReleaseLater(received)
	}
}

// request asks the server once. joined, if it is not nil, is the tenure that the process of a reader has already: the
// request then asks whether that does for this reader, too.
func (a *acquisition) request(ctx context.Context, entry *wait.QueueEntry, joined *owner) (wait.Answer, error) {
	client, placeless := a.lock.c, false
	timed := script.Timed[acquireReply]{
		Key: a.lock.key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			a.sentAt = sent
			if a.possibleSince.IsZero() {
				a.possibleSince = sent
			}
			call := a.newCall(notAfter, entry, joined)
			call.Replicas, call.ReplicasWait = client.opts.MinReplicas, client.opts.ReplicaTimeout
			message, err := client.callWithQueue(ctx, &call)
			placeless = len(call.Keys) == 1
			return message, err
		},
		Decode: decodeAcquire,
	}
	reply, err := a.attempt(ctx, entry, &timed)
	received := time.Now()
	from := a.replaced
	if a.replaced = nil; from != nil {
		a.settleReplaced(from, reply, err, received)
	}
	unmet := script.IsUnreplicated(err)
	if err != nil && !unmet {
		a.requestFailed(err, received)
		return wait.Answer{}, err
	}
	if unmet && reply.status == acquireGranted {
		return wait.Answer{}, a.releaseUnreplicated(ctx, err)
	}
	if reply.serverRun != 0 {
		client.memberRun.Store(reply.serverRun)
	}
	if from != nil && reply.status != acquireGranted {
		return a.request(ctx, entry, nil)
	}
	switch reply.status {
	case acquireGranted:
		answer, err := a.answerGrant(received)
		if err == nil {
			a.handedOver, a.token, a.stillQueued = false, reply.token, entry != nil && placeless
			a.recordContention(!reply.queueEmpty && !reply.unclaimed)
			a.openReadWindow(reply.unclaimed, received)
		}
		return answer, err
	case acquireShared:
		if !client.cohorts.enterSharedRead(joined) { // its last reader has left meanwhile
			return a.request(ctx, entry, nil)
		}
		a.contender.sharedRead = joined
		a.openReadWindow(true, received)
		return wait.Answer{Granted: true}, nil
	case acquireLost:
		if a.joinOwner != "" {
			return wait.Answer{}, fmt.Errorf("join %s on %q: %w", a.joinOwner, a.lock.name, errs.ErrLost)
		}
		return wait.Answer{}, fmt.Errorf("re-enter %q: %w", a.lock.name, errs.ErrLost)
	case acquireYoung:
		return wait.Answer{}, &youngError{a.lock.name, reply.leaseLeft}
	}
	return a.answerRefusal(reply, received)
}

// attempt makes the call: shared with those of other free locks if many are under way, and otherwise, or if the lock
// turns out not to be free, alone.
func (a *acquisition) attempt(ctx context.Context, entry *wait.QueueEntry,
	alone *script.Timed[acquireReply]) (acquireReply, error) {
	client := a.lock.c
	if entry == nil && a.joinOwner == "" && a.writeHold == nil && a.replaced == nil {
		coalesce := client.enterCoalescer(a.lock.kind)
		defer client.leaveCoalescer(a.lock.kind)
		if coalesce && client.waiters.Members(a.lock.key) <= 1 { // where others wait it is not free
			if done, err := a.askShared(ctx); done || err != nil {
				return acquireReply{status: acquireGranted, queueEmpty: true}, err
			}
		}
	}
	reply, err := alone.Run(ctx, client.runner)
	a.lastRunAt = a.sentAt.Add(alone.Runs)
	return reply, err
}

// answerGrant is the answer to a try that was granted.
func (a *acquisition) answerGrant(received time.Time) (wait.Answer, error) {
	lock := a.lock
	switch {
	case !received.Before(a.sentAt.Add(a.requestedLease() - lease.Margin(a.requestedLease()))):
		// A reply slower than the lease is worthless.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: the grant took longer than its lease of %v", errs.ErrUnavailable, lock.name, a.requestedLease())
	case !lock.c.engine.Trusted(lock.key, a.possibleSince):
		// Another waiter may have seen it for long enough to take it away.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: the grant was not known of before a heartbeat was due", errs.ErrUnavailable, lock.name)
	}
	return wait.Answer{Granted: true}, nil
}

// answerRefusal is the answer to a try that found another holder.
func (a *acquisition) answerRefusal(reply acquireReply, received time.Time) (wait.Answer, error) {
	lock := a.lock
	if !lock.c.engine.Trusted(lock.key, a.possibleSince) {
		// Since its last answer this owner may have been handed the lock, and lost it to a takeover. The process that took
		// over must not see the same owner again.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", errs.ErrUnavailable, lock.name)
	}
	a.possibleSince = a.sentAt
	a.recordRefusal(refusalInfo{holder: reply.holder, isEndless: reply.leaseLeft < 0})
	if lock.c.monitor != nil && a.canWait && !a.monitored {
		a.monitored = true
		lock.c.monitor.watch(lock)
	}
	// A string that is another program's is released without a word.
	published := reply.holder.isForeign() && !reply.holder.isOtherKind() && !lock.kind.hearsAllReleases
	return wait.Answer{Left: reply.leaseLeft, Foreign: published, Unpublished: reply.holder.isOtherKind(),
		Ticket: reply.ticket, Sent: a.sentAt, Soon: a.repeatIn(received)}, nil
}

// recordRefusal keeps what an answer said of the holder, for those that give up.
func (a *acquisition) recordRefusal(now refusalInfo) {
	if a.contender == nil {
		a.refusal = now
		return
	}
	cohorts, cohort := &a.lock.c.cohorts, a.contender.cohort
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	now.outcomeUnknown = cohort.refusal.outcomeUnknown
	cohort.refusal = now
	if a.lock.kind.concurrentTurns {
		cohort.turnsUntil = 0 // others come first
	}
}

// recordContention notes whether others may wait on the server for what was granted.
func (a *acquisition) recordContention(others bool) {
	if a.contender != nil {
		a.contender.othersWaited = others
	}
}

// repeatIn is when to ask again because an earlier try, whose caller left before the reply, may have been granted
// since; 0: none may.
//
//	the first caller: asks, leaves      another goroutine goes on       server
//	                                    asks: held  ------------------>
//	                                                                    the lock is released; the queue is empty
//	                                                                    the first request runs: granted
//	                                    asks once more: granted
func (a *acquisition) repeatIn(now time.Time) time.Duration {
	contender := a.contender
	if contender == nil || !now.Before(script.LastRun(a.unansweredUntil)) {
		return 0
	}
	contender.repeats++
	return script.Backoff(min(2*contender.repeats, 4))
}

// releaseAndRequest is the first Ask of a request that follows a tenure: one call releases that, and names this owner,
// which is granted the lock or put into the queue. Where that cannot be, because the process hears no grants yet, or
// does not know the server's time, and for writers, whose turn among readers the release decides, these are two calls.
func (contender *lockContender) releaseAndRequest(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	from, lock, sent := contender.previous, contender.lock, time.Now()
	contender.previous = nil
	end := sent.Add(lock.c.opts.CallTimeout)
	notAfter := lock.c.runner.Clock.At(lock.key, end)
	if entry == nil || notAfter == 0 || !lock.kind.canChainTenures {
		status, err := lock.runRelease(ctx, from.Lease.Owner, from.Entry())
		contender.releaseResults <- releaseResult{status: status, err: err}
		return contender.request(ctx, entry, nil)
	}
	reply, err := lock.sendRelease(ctx,
		releaseRequest{owner: from.Lease.Owner, entry: from.Entry(), next: entry, notAfter: notAfter,
			turnCount: from.Turn() + 1})
	contender.releaseResults <- releaseResult{status: reply.status, err: err}
	contender.sentAt = sent
	switch {
	case err != nil:
		if errors.Is(err, errs.ErrUnknownOutcome) {
			contender.ReleaseLater(end)
		}
		if !script.NotAnswered(err) {
			return contender.request(ctx, entry, nil)
		}
		return wait.Answer{}, err
	case reply.outcome == 1 && (lock.kind.confirmsGrants || lock.c.opts.MinReplicas > 0): // see Taken
		contender.possibleSince = sent
	case reply.outcome == 1:
		answer, err := contender.answerGrant(time.Now())
		contender.handedOver, contender.othersWaited = false, reply.ticket != 0
		return answer, err
	case reply.outcome == 2:
		contender.possibleSince = sent
		return wait.Answer{Left: -1, Ticket: reply.ticket, Sent: sent}, nil
	}
	return contender.request(ctx, entry, nil)
}

// replaceOwner gives back a grant that came too late, and goes on as another owner: the id of what was released is
// never used again.
func (a *acquisition) replaceOwner(received time.Time) wait.Answer {
	a.unansweredUntil = received
	a.own.Abandon(a.unansweredUntil, a.entry)
	a.own, a.entry, a.possibleSince = a.newOwner(), a.newEntry(), time.Time{}
	answer := wait.Answer{Renamed: true}
	if a.lock.kind.enqueuesWhenRefused {
		answer.Channel = a.lock.kind.channel(a.lock.key, a.own.Lease.Owner)
	}
	return answer
}

// newEntry is the entry to ask with, for a kind whose refused tries leave something on the server; "" for other kinds,
// and for an acquisition that asks once.
func (a *acquisition) newEntry() string {
	if a.lock.kind.enqueuesWhenRefused && a.canWait {
		return script.Millis(a.lock.c.patience())
	}
	return ""
}

// releaseUnreplicated releases a grant that too few replicas have, and returns err.
func (a *acquisition) releaseUnreplicated(ctx context.Context, err error) error {
	lock := a.lock
	if _, releaseErr := lock.runRelease(ctx, a.own.Lease.Owner, a.entry); releaseErr != nil {
		a.unansweredUntil = time.Now() // Abandon goes on with it
	}
	return err
}

func (a *acquisition) newCall(notAfter int64, entry *wait.QueueEntry, joined *owner) script.Call {
	if a.joinOwner != "" {
		call := joinCall(a.lock, string(a.joinOwner), a.own.Lease.Owner, a.lease, notAfter)
		call.Late = a.onLateReply(entry)
		return call
	}
	text := ""
	switch {
	case entry != nil:
		text = entry.Entry
	case a.lock.kind.enqueuesWhenRefused:
		text = a.entry
	}
	under := ""
	if a.writeHold != nil {
		under = a.writeHold.Lease.Owner
	}
	request := acquireRequest{owner: a.own.Lease.Owner, lease: a.requestedLease(),
		leaseMillis: a.lock.c.millis(a.requestedLease()),
		notAfter:    notAfter, entry: text, writeOwner: under}
	if a.replaced != nil {
		request.replacedOwner, request.entry = a.replaced.Lease.Owner, ""
	}
	if a.sendCount++; a.sendCount == 1 { // a try that is given up may still read its own
		request.argsRoom = a.argsRoom[:0]
	}
	if a.lock.kind.enqueuesWhenRefused && entry != nil {
		request.leavesAt = a.lock.c.runner.Clock.Leaves(a.lock.key, a.leavesAt)
	}
	if joined != nil {
		request.sharedOwner = joined.Lease.Owner
	}
	call := a.lock.kind.acquire(a.lock, request)
	call.Late = a.onLateReply(entry)
	return call
}

// onLateReply gives back what a try got after the acquisition had given up on it: the lock, or a place in its queue.
// The retrier does so, too, but it may have asked before the server ran the request.
func (a *acquisition) onLateReply(entry *wait.QueueEntry) func(rueidis.RedisResult) {
	own, queued, q := a.own, entry != nil || a.entry != "", a.lock.c.waiters
	return func(res rueidis.RedisResult) {
		message, err := res.ToMessage()
		if err != nil {
			return
		}
		reply, err := decodeAcquire(message)
		if err == nil && (reply.status == acquireGranted || reply.status == acquireHeld && queued) {
			q.Nudge(own.Lease.Owner) // the request of a tenure goes on, and finds it
			own.Late()
		}
	}
}
