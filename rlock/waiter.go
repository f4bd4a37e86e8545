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
	if a.times.possibleSince.IsZero() { // a release may request this owner's tenure before the owner's own first request
		a.times.possibleSince = time.Now()
	}
	poll := min(client.opts.PollCap, wait.MaxPoll)
	first := min(a.wanted.lease, client.shortLease())
	if a.contender != nil {
		first = client.firstLease()
	}
	if crowd && a.lock.kind.waiting.handsOver && client.monitor == nil {
		// With Liveness a waiter needs a reply for each heartbeat: see answerRefusal.
		poll = wait.MaxPoll
	}
	entry := wait.QueueEntry{Owner: a.own.Lease.Owner, Lease: a.wanted.requestedLease(), Poll: poll, LeavesAt: a.leavesAt,
		Entry: a.lock.kind.waiting.queueEntry(a, poll, first)}
	if a.lock.kind.waiting.enqueuesWhenRefused {
		entry.Channel = a.lock.kind.layout.channel(a.lock.key, entry.Owner)
	}
	return entry
}

// Taken implements wait.Taker. It reports whether the grant can be used without a confirming request. It cannot be used
// in these cases:
//
//   - Replicas must confirm the grant, or a token must be minted.
//   - Half of the lease is over.
//   - The lease is short, and the watchdog does not raise it.
//   - The owner's heartbeats do not cover the grant (Trusted).
//
// The next request then confirms the grant, and its lease counts anew.
func (a *acquisition) Taken(grant wait.Grant) bool {
	switch {
	case a.lock.c.opts.MinReplicas > 0, a.lock.kind.confirmsGrants:
		return false // the next acquire finds the owner's field, waits for replicas, and mints the token
	case a.contender == nil && !a.wanted.autoRenew && grant.Ticket > 0 && grant.Lease >= a.wanted.lease:
		return false // the watchdog does not raise this lease, so the full lease must count from now
	case !a.lock.c.engine.Trusted(a.lock.key, grant.Sent):
		return false
	case time.Until(grant.Sent.Add(grant.Lease)) < grant.Lease/2:
		return false
	}
	a.times.sentAt, a.grant.writtenLease = grant.Sent, grant.Lease
	a.recordContention(true)
	return true
}

// ReleaseLater implements wait.Taker.
func (a *acquisition) ReleaseLater(after time.Time) {
	if after.IsZero() && a.isAnswered {
		return // the script that gave the answer has removed the entry
	}
	if after.IsZero() {
		after = time.Now()
	}
	if after.After(a.times.unansweredUntil) {
		a.times.unansweredUntil = after
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

// Ask implements wait.Taker: it sends one request.
func (a *acquisition) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	return a.request(ctx, entry, nil)
}

// requestFailed records how long a request that failed with err may still take the lock or a queue entry.
func (a *acquisition) requestFailed(err error, received time.Time) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		a.ReleaseLater(a.times.lastRunAt)
	case script.BrokenOff(err): // the script may have left a lock without an expiry
		a.ReleaseLater(received)
	}
}

// request sends one request. shared is the tenure that the process of a reader has already; nil: none. With shared the
// request asks whether the new reader can share that tenure.
//
// While many requests are in progress, a request for a lock without waiting callers goes in a call that other locks
// share. If the lock turns out not to be free, it is requested once more, alone.
func (a *acquisition) request(ctx context.Context, entry *wait.QueueEntry, shared *owner) (wait.Answer, error) {
	client, sentWithoutQueue := a.lock.c, false
	if entry == nil && a.joinOwner == "" && a.writeHold == nil && a.replaced == nil {
		coalesce := client.enterCoalescer(a.lock.kind)
		defer client.leaveCoalescer(a.lock.kind)
		if coalesce && client.waiters.Members(a.lock.key) <= 1 {
			if done, err := a.askShared(ctx); done || err != nil {
				return a.readReply(ctx, acquireReply{status: acquireGranted, unclaimed: true}, err, time.Now(), false)
			}
		}
	}
	timed := script.Timed[acquireReply]{
		Key: a.lock.key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			a.times.sent(sent)
			call := a.newCall(notAfter, entry, shared)
			call.Replicas, call.ReplicasWait = client.opts.MinReplicas, client.opts.ReplicaTimeout
			message, err := client.callWithQueue(ctx, &call)
			sentWithoutQueue = len(call.Keys) == 1
			return message, err
		},
		Decode: decodeAcquire,
	}
	reply, err := timed.Run(ctx, client.runner)
	a.times.lastRunAt = a.times.sentAt.Add(timed.Runs)
	received := time.Now()
	from := a.replaced
	if a.replaced = nil; from != nil {
		a.settleReplaced(from, reply, err, received)
	}
	answered := err == nil || script.IsUnreplicated(err)
	switch {
	case answered && from != nil && reply.status != acquireGranted:
		return a.request(ctx, entry, nil)
	case answered && reply.status == acquireShared:
		if !client.cohorts.enterSharedRead(shared) { // the last reader has left meanwhile
			return a.request(ctx, entry, nil)
		}
		a.contender.sharedRead = shared
		a.openReadWindow(true, received)
		return wait.Answer{Granted: true}, nil
	}
	return a.readReply(ctx, reply, err, received, entry != nil && sentWithoutQueue)
}

// callWithQueue makes a call whose second key, if it has one, is the queue. While a slot is being migrated a script
// with two keys is refused, whether the lock is held or free. Then the call is made with the lock's key alone, and
// waiters poll.
//
// A request of a Once needs all its keys: without the answer it would grant a run although there is an answer.
func (c *Client) callWithQueue(ctx context.Context, call *script.Call) (rueidis.RedisMessage, error) {
	reply, err := c.runner.Attempt(ctx, *call)
	if err != nil && len(call.Keys) > 1 && call.Script != onceScript {
		var refusal *rueidis.RedisError
		if errors.As(err, &refusal) && refusal.IsTryAgain() {
			call.Keys = lockAlone(call.Keys)
			reply, err = c.runner.Attempt(ctx, *call)
		}
	}
	return reply, err
}

// readReply returns the answer to a request by its reply or error. stillQueued: a grant could not remove the queue
// entry.
func (a *acquisition) readReply(ctx context.Context, reply acquireReply, err error, received time.Time,
	stillQueued bool) (wait.Answer, error) {
	unmet := script.IsUnreplicated(err)
	if err == nil && reply.status == acquireGranted && reply.token < 1 && a.lock.kind.confirmsGrants && a.joinOwner == "" {
		err = script.Unexpected("acquire", "without a token", nil)
	}
	if err != nil && !unmet {
		a.requestFailed(err, received)
		return wait.Answer{}, err
	}
	if unmet && reply.status == acquireGranted {
		return wait.Answer{}, a.releaseUnreplicated(ctx, err)
	}
	if reply.serverRun != 0 {
		a.lock.c.memberRun.Store(reply.serverRun)
	}
	switch reply.status {
	case acquireGranted:
		answer, err := a.answerGrant(received)
		if err == nil {
			a.grant.writtenLease, a.grant.token, a.grant.stillQueued = 0, reply.token, stillQueued
			if a.own.once != nil {
				a.own.once.oldAnswer, a.own.once.oldUntil = reply.answer, a.times.sentAt.Add(reply.answerFor)
			}
			a.recordContention(!reply.unclaimed)
			a.openReadWindow(reply.unclaimed, received)
		}
		return answer, err
	case acquireLost:
		if a.joinOwner != "" {
			return wait.Answer{}, fmt.Errorf("join %s on %q: %w", a.joinOwner, a.lock.name, errs.ErrLost)
		}
		return wait.Answer{}, fmt.Errorf("re-enter %q: %w", a.lock.name, errs.ErrLost)
	case acquireAnswered:
		return wait.Answer{}, &wait.Published{Result: reply.answer, Since: a.times.sentAt, Lasts: reply.leaseLeft}
	case acquireYoung:
		return wait.Answer{}, &youngError{a.lock.name, reply.leaseLeft}
	}
	return a.answerRefusal(reply, received)
}

// answerGrant returns the answer to a granted request. If the grant cannot be used, it replaces the owner.
func (a *acquisition) answerGrant(received time.Time) (wait.Answer, error) {
	lock := a.lock
	switch {
	case !received.Before(a.times.sentAt.Add(a.wanted.requestedLease() - lease.Margin(a.wanted.requestedLease()))):
		// The lease is over, or nearly.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: the grant took longer than its lease of %v", errs.ErrUnavailable, lock.name,
				a.wanted.requestedLease())
	case !lock.c.engine.Trusted(lock.key, a.times.possibleSince):
		// A monitor of another process may have watched this hold for long enough to remove it.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: the grant was not known of before a heartbeat was due", errs.ErrUnavailable, lock.name)
	}
	return wait.Answer{Granted: true}, nil
}

// answerRefusal returns the answer to a request that found another holder.
func (a *acquisition) answerRefusal(reply acquireReply, received time.Time) (wait.Answer, error) {
	lock := a.lock
	if !lock.c.engine.Trusted(lock.key, a.times.possibleSince) {
		// Since the last reply this owner may have been handed the lock, and lost it to a takeover. The process that took
		// the lock over must not see the same owner again.
		return a.replaceOwner(received),
			fmt.Errorf("%w: %q: no answer for longer than heartbeats are trusted", errs.ErrUnavailable, lock.name)
	}
	a.times.possibleSince = a.times.sentAt
	a.recordRefusal(refusalInfo{holder: reply.holder, isEndless: reply.leaseLeft < 0})
	if lock.c.monitor != nil && a.canWait && !a.monitored {
		a.monitored = true
		lock.c.monitor.watch(lock)
	}
	answer := wait.Answer{Left: reply.leaseLeft, Ticket: reply.ticket, Sent: a.times.sentAt,
		RepeatIn: a.repeatIn(received)}
	switch {
	case reply.holder.isOtherKind():
		answer.Release = wait.Nowhere
	case reply.holder.isForeign() && lock.kind.layout.stringKeyArg == "": // a program with a string publishes nothing
		answer.Release = wait.OnChannel
	}
	if lock.kind.waiting.enqueuesWhenRefused && reply.leaseLeft >= 0 {
		answer.RepeatIn = wait.AfterLease(reply.leaseLeft)
	}
	return answer, nil
}

// recordRefusal records the holder by the last reply, for callers that give up.
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
	if a.lock.kind.waiting.concurrentTurns {
		cohort.turnsUntil = 0 // no reader joins any more, because another process is served first
	}
}

// recordContention notes whether other processes may have been queued when the lock was granted.
func (a *acquisition) recordContention(others bool) {
	if a.contender != nil {
		a.contender.othersWaited = others
	}
}

// repeatIn returns when to repeat the request, because an earlier request without a reply may have been granted since;
// 0: there is no such request.
//
//	the first caller: requests, leaves  another goroutine continues     server
//	                                    requests: held  -------------->
//	                                                                    the lock is released; the queue is empty
//	                                                                    the first request runs: granted
//	                                    requests once more: granted
func (a *acquisition) repeatIn(now time.Time) time.Duration {
	contender := a.contender
	if contender == nil || !now.Before(script.LastRun(a.times.unansweredUntil)) {
		return 0
	}
	contender.repeats++
	return script.Backoff(min(2*contender.repeats, 4))
}

// releaseAndRequest is the first Ask of a contender that follows a tenure. One call releases that tenure's owner and
// requests the next tenure, whose owner gets the lock or a queue entry. Two calls are needed in these cases:
//
//   - The process does not hear grants yet.
//   - The process does not know the server's time.
//   - The contender writes: the release decides whether writers or readers are next.
func (contender *lockContender) releaseAndRequest(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	from, lock, sent := contender.previous, contender.lock, time.Now()
	contender.previous = nil
	end := sent.Add(lock.c.opts.CallTimeout)
	notAfter := lock.c.runner.Clock.At(lock.key, end)
	if entry == nil || notAfter == 0 || !lock.kind.waiting.handsOver {
		status, err := lock.runRelease(ctx, from.Lease.Owner, from.Entry())
		contender.releaseResults <- releaseResult{status: status, err: err}
		return contender.request(ctx, entry, nil)
	}
	reply, err := lock.sendRelease(ctx,
		releaseRequest{owner: from.Lease.Owner, entry: from.Entry(), next: entry, notAfter: notAfter,
			turnCount: from.Turn() + 1})
	contender.releaseResults <- releaseResult{status: reply.status, err: err}
	contender.times.sentAt = sent
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
		contender.times.possibleSince = sent
	case reply.outcome == 1:
		answer, err := contender.answerGrant(time.Now())
		contender.grant.writtenLease, contender.othersWaited = 0, reply.ticket != 0
		return answer, err
	case reply.outcome == 2:
		contender.times.possibleSince = sent
		return wait.Answer{Left: -1, Ticket: reply.ticket, Sent: sent}, nil
	}
	return contender.request(ctx, entry, nil)
}

// replaceOwner releases a grant that came too late, and continues with another owner, because the id of a released
// owner is never used again.
func (a *acquisition) replaceOwner(received time.Time) wait.Answer {
	a.times.unansweredUntil = received
	a.own.Abandon(a.times.unansweredUntil, a.entry)
	a.own, a.entry, a.times.possibleSince = a.newOwner(), a.newEntry(), time.Time{}
	return wait.Answer{OwnerReplaced: true}
}

// newEntry returns the queue entry of a kind whose refused requests leave one on the server. It returns "" for other
// kinds, and for an acquisition that sends one request.
func (a *acquisition) newEntry() string {
	if a.lock.kind.waiting.enqueuesWhenRefused && a.canWait {
		return script.Millis(a.lock.c.patience())
	}
	return ""
}

// releaseUnreplicated releases a grant that too few replicas confirmed, and returns err.
func (a *acquisition) releaseUnreplicated(ctx context.Context, err error) error {
	lock := a.lock
	if _, releaseErr := lock.runRelease(ctx, a.own.Lease.Owner, a.entry); releaseErr != nil {
		a.times.unansweredUntil = time.Now() // Abandon repeats the release
	}
	return err
}

// newCall returns the call of one request.
func (a *acquisition) newCall(notAfter int64, entry *wait.QueueEntry, shared *owner) script.Call {
	if a.joinOwner != "" {
		call := joinCall(a.lock, string(a.joinOwner), a.own.Lease.Owner, a.wanted.lease, notAfter)
		call.Late = a.onLateReply(entry)
		return call
	}
	text := ""
	switch {
	case entry != nil:
		text = entry.Entry
	case a.lock.kind.waiting.enqueuesWhenRefused:
		text = a.entry
	}
	under := ""
	if a.writeHold != nil {
		under = a.writeHold.Lease.Owner
	}
	request := acquireRequest{owner: a.own.Lease.Owner, lease: a.wanted.requestedLease(),
		leaseMillis: a.lock.c.millis(a.wanted.requestedLease()),
		notAfter:    notAfter, entry: text, writeOwner: under}
	if a.replaced != nil {
		request.replacedOwner, request.entry = a.replaced.Lease.Owner, ""
	}
	if a.sendCount++; a.sendCount == 1 { // a later request gets other memory: an abandoned request may still read its own
		request.argsRoom = a.argsRoom[:0]
	}
	if a.lock.kind.waiting.enqueuesWhenRefused && entry != nil {
		request.leavesAt = a.lock.c.runner.Clock.Leaves(a.lock.key, a.leavesAt)
	}
	if shared != nil {
		request.sharedOwner = shared.Lease.Owner
	}
	call := a.lock.kind.acquire(a.lock, request)
	call.Late = a.onLateReply(entry)
	return call
}

// onLateReply returns the function that releases what a late reply reports: the lock, or a queue entry. The retrier
// releases both, too, but its release may have run before the request.
func (a *acquisition) onLateReply(entry *wait.QueueEntry) func(rueidis.RedisResult) {
	own, queued, q := a.own, entry != nil || a.entry != "", a.lock.c.waiters
	return func(res rueidis.RedisResult) {
		message, err := res.ToMessage()
		if err != nil {
			return
		}
		reply, err := decodeAcquire(message)
		if err == nil && (reply.status == acquireGranted || reply.status == acquireHeld && queued) {
			q.Nudge(own.Lease.Owner) // a contender that still requests the lock polls, and finds the grant
			own.Late()
		}
	}
}
