package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/script"
)

// Requester is a Taker whose local queue has no contender, because several waiters can be granted at once. Every waiter
// may have an entry of its own in the server's queue, and one call requests for many waiters. The package comment,
// under "Queue requests", has the protocol.
type Requester interface {
	Taker
	// RequestAll requests for several waiters in one call, in their order. With enqueue the call enqueues each waiter that
	// it cannot serve. Otherwise it serves no waiter behind a waiter that it cannot serve, because no queue keeps their
	// order. Grants to other waiters in the same reply go to Waiters.Served.
	//
	// RequestAll is called on any Requester of the local queue, perhaps while the Requester's waiter leaves. So it uses
	// only the entries.
	RequestAll(ctx context.Context, entries []QueueEntry, enqueue bool) (replies any, err error)
	// Reply returns the result of RequestAll for this waiter, whose entry was entries[i], as Ask would have returned it.
	Reply(replies any, i int, err error) (Answer, error)
}

const (
	// maxBatch is the largest number of waiters in one call.
	maxBatch = 128
	// subscribeGrace is how long a call awaits the first subscription to grants before it is sent without.
	subscribeGrace = 50 * time.Millisecond
	// replyGrace is how long a waiter whose time is over awaits the reply to a call in flight. A healthy server replies
	// long before.
	replyGrace   = 20 * time.Millisecond
	closingGrace = 2 * time.Second // replaces replyGrace when the client closes
)

// queueRequests holds the calls that request for many waiters of a local queue, and their results. Guarded by
// Waiters.mu.
type queueRequests struct {
	wanted  []*Caller // waiters to request for, in order; some may have left
	running bool      // a goroutine makes the calls, one at a time
	outage  outage    // of the calls
	requestPace

	// The last call and its reply.
	enqueues       bool // the call enqueued its waiters
	placeless      bool // the waiters got no tickets
	releasesSilent bool // no grant follows the holders' releases

	cancelReleases context.CancelFunc // ends the subscription to releases; nil: there is no subscription

	timer    *time.Timer
	timerAt  time.Time // when the timer goes off; zero: it is stopped
	pollAt   time.Time // when the next pollAll is due
	polledAt time.Time // when the last pollAll was made
}

// want adds a waiter to wanted.
func (r *queueRequests) want(caller *Caller) {
	if !caller.joint.isWanted && caller.joint.state != unlisted {
		caller.joint.isWanted = true
		r.wanted = append(r.wanted, caller)
	}
}

// havePlaces reports whether the waiters have entries in the server's queue.
func (r *queueRequests) havePlaces() bool { return r.enqueues && !r.placeless }

// contendTogether replaces contend in a local queue of Requesters. While the queue is empty every request goes out at
// once; with OneFirst, only one. From the first refusal until the queue is empty again, newcomers queue behind, and one
// call at a time requests for many waiters.
func (w *Caller) contendTogether() error {
	w.register(w.waiters.isSubscribed(w.request.Grants))
	if !w.joinIfWaiting() {
		done, err := w.try()
		if done {
			return err
		}
		w.join(w.results.answer, err)
	}
	for {
		if done, err := w.checkOutcome(); done {
			return err
		}
		select {
		case <-w.wakeup:
		case <-w.waitContext().Done():
			return w.giveUpTogether()
		}
	}
}

// isTimeUp reports whether Request.Until has passed.
func (w *Caller) isTimeUp() bool {
	return !w.request.Until.IsZero() && !time.Now().Before(w.request.Until)
}

// joinIfWaiting puts the waiter behind the waiters of its local queue. It returns false if the queue is empty. With
// OneFirst the waiter also joins if another waiter makes its first request, or if a call is under way for waiters that
// have left: so at most two calls of a local queue are under way.
func (w *Caller) joinIfWaiting() bool {
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	isAlone := queue.members == 1 && !queue.isRequesting()
	if queue.first == nil && (isAlone || w.request.Mode != OneFirst) {
		return false
	}
	waiters.addWaiting(queue, w)
	waiters.requestFor(queue, w)
	w.joint.mustWait = true
	return true
}

// join puts the waiter into its local queue after its own request was refused or got no reply.
func (w *Caller) join(answer Answer, err error) {
	if answer.OwnerReplaced {
		w.register(w.waiters.isSubscribed(w.request.Grants))
	}
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	waiters.addWaiting(queue, w)
	requests := queue.requests
	requests.enqueues = w.place.entry.hearsGrants
	if err != nil && requests.outage.failures == 0 {
		requests.outage.record(w.results.outage.since) // so that the next request is not sent at once
	}
	if err != nil || answer.Ticket == 0 && !w.place.entry.hearsGrants {
		requests.want(w)
	}
	waiters.keepWaiting(queue, w, answer, err)
}

// keepWaiting records the answer to a waiter that goes on waiting, and requests for it again if the answer is an error
// or Answer.Retry. Called with mu held.
func (q *Waiters) keepWaiting(queue *localQueue, caller *Caller, answer Answer, err error) {
	requests := queue.requests
	if caller.joint.state = waiting; err == nil && !answer.Retry {
		caller.joint.mustWait = true
		onChannel := answer.Release == OnChannel
		requests.placeless, requests.releasesSilent = requests.enqueues && answer.Ticket == 0, onChannel
		if !caller.joint.isWanted && (onChannel || !caller.place.entry.hearsGrants) { // else the next reply decides
			q.listenForReleases(queue, caller)
		}
		if answer.RepeatIn > 0 {
			q.wakeBy(queue, time.Now().Add(answer.RepeatIn))
		}
	} else {
		requests.want(caller)
	}
	q.startRequests(queue)
}

// addWaiting puts a waiter behind the others, in state waiting, and sets the timer for its polls. Called with mu held.
func (q *Waiters) addWaiting(queue *localQueue, caller *Caller) {
	requests := queue.sharedRequests()
	if queue.first == nil {
		requests.polledAt = time.Now()
		requests.pollAt = requests.polledAt.Add(q.pollInterval(requests))
	}
	queue.Add(caller, false)
	if caller.joint.state = waiting; caller.place.mayBeQueued {
		requests.queuedCount++
	}
	q.wakeBy(queue, requests.pollAt)
}

// sharedRequests returns the requests of a local queue of Requesters. Called with mu held.
func (l *localQueue) sharedRequests() *queueRequests {
	if l.requests == nil {
		l.requests = &queueRequests{}
	}
	return l.requests
}

// isRequesting reports whether a call requests for waiters of the local queue, which may have left. Called with mu
// held.
func (l *localQueue) isRequesting() bool { return l.requests != nil && l.requests.running }

// leaveRequests removes a waiter that leaves. The last waiter stops the timer and the subscription to releases. Called
// with mu held.
func (q *Waiters) leaveRequests(queue *localQueue, caller *Caller) {
	requests, wasFirst := queue.requests, queue.first == caller
	queue.Remove(caller)
	caller.joint.state = unlisted
	requests.recordEnd(caller)
	switch {
	case queue.first == nil:
		requests.timer.Stop()
		if requests.cancelReleases != nil {
			requests.cancelReleases()
		}
		*requests = queueRequests{running: requests.running, enqueues: requests.enqueues, timer: requests.timer,
			requestPace: requests.requestPace}
	case caller.granted && wasFirst && !requests.havePlaces():
		q.requestFor(queue, queue.first) // the waiters before it were served: there may be permits for it, too
	default:
		q.startRequests(queue) // the limit may allow another waiter
	}
}

// checkOutcome reports whether a reply or a grant has ended the wait, and returns the error of the wait.
func (w *Caller) checkOutcome() (done bool, err error) {
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	done, err = w.joint.done, w.joint.doneErr
	mustWait, hasGrant := w.joint.mustWait, w.place.grant != nil
	waiters.mu.Unlock()
	if done {
		return true, err
	}
	if hasGrant {
		waiters.onWakeup(w.ctx, w.request.Name, true)
	}
	used, doubt := w.takeGrant()
	if used {
		return true, nil
	}
	if mustWait {
		w.reportWaiting()
	}
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if doubt && w.joint.state == waiting {
		w.place.grant = nil // the reply replaces it
		waiters.requestFor(queue, w)
	}
	return false, nil
}

// giveUpTogether ends the wait of a caller whose time is over. If a call in flight requests for the caller, it awaits
// the reply for a moment. Otherwise a release would be pending until the call can no longer run, and a Close would wait
// for that release ("Close while it is being granted leaves nothing" in internal/contract). A reply that has arrived is
// read in any case.
func (w *Caller) giveUpTogether() error {
	waiters, grace := w.waiters, replyGrace
	if waiters.ctx.Err() != nil { // the client closes: the caller's time is not over, and Close waits in any case
		grace = max(grace, min(w.request.MaxRunTime, closingGrace))
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for graceOver := false; ; {
		waiters.mu.Lock()
		switch {
		case w.joint.state == waiting:
			w.joint.state = deciding // so that no call requests for it
		case w.joint.state == requested && graceOver:
			w.joint.state = abandoned
		}
		done, granted := w.joint.state == deciding || w.joint.state == abandoned, w.joint.done && w.joint.doneErr == nil
		waiters.mu.Unlock()
		switch {
		case granted:
			return nil
		case done:
			return w.gaveUp()
		}
		select {
		case <-w.wakeup:
		case <-timer.C:
			graceOver = true
		}
	}
}

// pollAll requests for all waiters of a local queue. Called with mu held.
func (q *Waiters) pollAll(queue *localQueue) {
	queue.requests.polledAt = time.Now()
	for caller := queue.first; caller != nil; caller = caller.behind {
		queue.requests.want(caller)
	}
	q.startRequests(queue)
}

// requestFor requests for one waiter. Without entries on the server the call requests for the first waiters of the
// local queue. Called with mu held.
func (q *Waiters) requestFor(queue *localQueue, caller *Caller) {
	queue.requests.want(caller)
	q.startRequests(queue)
}

// startRequests starts requestAll if a waiter is wanted, unless it runs. Called with mu held.
func (q *Waiters) startRequests(queue *localQueue) {
	if requests := queue.requests; !requests.running && len(requests.wanted) > 0 && q.ctx.Err() == nil {
		requests.running = true
		go q.requestAll(queue)
	}
}

// requestAll makes calls for the wanted waiters of a local queue, one call at a time, until no waiter is wanted.
func (q *Waiters) requestAll(queue *localQueue) {
	for {
		q.mu.Lock()
		current := queue.requests.outage
		q.mu.Unlock()
		if current.failures > 0 {
			script.Pause(q.ctx, q.retryIn(current))
		}
		q.awaitGrants(queue)
		callers, entries, enqueue := q.nextCallers(queue)
		if len(callers) == 0 {
			return
		}
		// Copies, because the waiter may leave during the call.
		first, requester, sent := callers[0].request, callers[0].joint.requester, time.Now()
		replies, err := requester.RequestAll(context.WithoutCancel(q.ctx), entries, enqueue)
		switch {
		case err == nil:
			q.Silence.RecordAnswer(&first)
		case script.NotAnswered(err):
			q.Silence.recordFailure(&first, sent, err)
		}
		q.recordReplies(queue, callers, entries, sent, replies, err)
	}
}

// nextCallers returns the waiters for which the next call requests. It returns an empty list, which ends requestAll, if
// no waiter is wanted, or if the wanted waiter checks a grant: that waiter starts requestAll again if necessary.
func (q *Waiters) nextCallers(queue *localQueue) (callers []*Caller, entries []QueueEntry, enqueue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	requests := queue.requests
	if len(requests.wanted) > 0 && queue.first != nil && q.ctx.Err() == nil {
		subscription := q.grants.subs[queue.first.request.Grants]
		enqueue = subscription != nil
		if enqueue && !requests.placeless {
			if queue.isOfFlows() {
				requests.wanted = inTurns(requests.wanted)
			}
			callers = requests.takeWanted()
		} else {
			callers = queue.takeFirst()
		}
		for _, caller := range callers {
			caller.useSubscription(subscription)
			caller.joint.state, caller.joint.isWanted = requested, false
			if enqueue {
				requests.addQueued(caller)
			}
			entries = append(entries, *caller.place.entry)
		}
	}
	if requests.running = len(callers) > 0; requests.running {
		requests.enqueues = enqueue
	} else if queue.members == 0 { // all have left during the call: see leaveLocalQueue
		q.removeQueue(queue)
	}
	return callers, entries, enqueue
}

// takeWanted removes and returns the wanted waiters, first come first, as far as they may have an entry.
func (r *queueRequests) takeWanted() (callers []*Caller) {
	var rest []*Caller
	for i, caller := range r.wanted {
		if len(callers) == maxBatch {
			rest = append(rest, r.wanted[i:]...)
			break
		}
		switch caller.joint.state {
		case waiting:
			if r.mayQueue(caller) {
				callers = append(callers, caller)
			} else {
				rest = append(rest, caller)
			}
		case requested, reading, deciding:
			rest = append(rest, caller)
		}
	}
	r.wanted = rest
	return callers
}

// takeFirst returns the first waiters of the local queue, wanted or not. No queue on the server keeps their order, so a
// call has to begin with the first waiter. It stops at a waiter for which no call may request now.
func (l *localQueue) takeFirst() (callers []*Caller) {
	for _, caller := range l.requests.wanted {
		caller.joint.isWanted = false
	}
	l.requests.wanted = nil
	for caller := range l.inOrder() {
		if len(callers) == l.requests.limitFor(caller) {
			break
		}
		if caller.joint.state != waiting {
			l.requests.want(caller)
			break
		}
		callers = append(callers, caller)
	}
	return callers
}

// recordReplies reads the replies of a call for its waiters, which do not use their Requesters meanwhile. After a
// failure the next call requests for the same waiters first. So an outage costs a process one call at a time however
// many callers wait.
func (q *Waiters) recordReplies(queue *localQueue, callers []*Caller, entries []QueueEntry, sent time.Time, replies any,
	err error) {
	q.mu.Lock()
	requests := queue.requests
	failed := err != nil && script.NotAnswered(err)
	if failed {
		requests.outage.record(sent)
	} else {
		requests.outage = outage{}
	}
	var again []*Caller
	for i, caller := range callers {
		if caller.joint.state != requested {
			q.reportUnclaimed(entries[i].Owner) // the waiter has left, and the server may have its entry or hold
			callers[i] = nil
			continue
		}
		caller.joint.state = reading
		if failed && !caller.joint.isWanted {
			caller.joint.isWanted = true
			again = append(again, caller)
		}
	}
	requests.wanted = append(again, requests.wanted...)
	q.mu.Unlock()
	for i, caller := range callers {
		if caller != nil {
			caller.readReply(replies, i, err)
		}
	}
}

// readReply records the waiter's part of the replies.
func (w *Caller) readReply(replies any, i int, err error) {
	waiters, queue := w.waiters, w.localQueue
	answer, err := w.joint.requester.Reply(replies, i, err)
	w.recordTicket(answer, err)
	if answer.OwnerReplaced {
		w.register(waiters.isSubscribed(w.request.Grants))
	}
	served := err == nil && answer.Granted || err != nil && !script.NotAnswered(err)
	switch {
	case served || err == nil && answer.Retry:
	case err == nil:
		w.recordFinding(answer.Left, nil)
	default:
		w.recordFinding(-1, err)
	}
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if served {
		w.joint.state, w.joint.done, w.joint.doneErr = deciding, true, err
	} else {
		waiters.keepWaiting(queue, w, answer, err)
	}
	signal(w.wakeup)
}

// pollInterval returns the time from one pollAll to the next. The server drops the entries of a process after two and a
// half polls without a call; any call of the process keeps all of its entries.
func (q *Waiters) pollInterval(requests *queueRequests) time.Duration {
	interval := min(q.pollCap, MaxPoll)
	if requests.placeless {
		interval /= pollsWithoutPlace
	}
	return interval - rand.N(interval/10+1)
}

// wakeBy sets the timer of the local queue to an instant, unless the timer goes off earlier. Called with mu held.
func (q *Waiters) wakeBy(queue *localQueue, at time.Time) {
	requests := queue.requests
	switch {
	case requests.timer == nil:
		requests.timer = time.AfterFunc(time.Until(at), func() { q.onTimer(queue) })
	case requests.timerAt.IsZero() || at.Before(requests.timerAt):
		requests.timer.Reset(time.Until(at))
	default:
		return
	}
	requests.timerAt = at
}

// onTimer requests for all waiters if pollAll is due. Otherwise leases end for which the first waiter waits, so onTimer
// requests for the first waiter; any call has the server serve its whole queue.
func (q *Waiters) onTimer(queue *localQueue) {
	q.mu.Lock()
	requests, now := queue.requests, time.Now()
	if requests.timerAt.IsZero() || now.Before(requests.timerAt) { // the timer was stopped or set again as it went off
		q.mu.Unlock()
		return
	}
	requests.timerAt = time.Time{}
	first := queue.first
	if first == nil {
		q.mu.Unlock()
		return
	}
	ctx, name, sendsCall := first.ctx, first.request.Name, true
	if now.Before(requests.pollAt) {
		q.requestFor(queue, first)
	} else {
		requests.pollAt = now.Add(q.pollInterval(requests))
		if sendsCall = !q.allSkipPoll(queue); sendsCall {
			q.pollAll(queue)
		}
	}
	q.wakeBy(queue, requests.pollAt)
	q.mu.Unlock()
	if sendsCall {
		q.onWakeup(ctx, name, false)
	}
}

// Served records the grants in a reply to a call of this process, to waiters for which the call did not request. Each
// grant counts from the call's send. due is the time until enough leases end for the first entry of the server's queue,
// if the entry belongs to this process: the first waiter of the local queue is requested for then. due is negative if
// the time is not known, or if the entry belongs to another process.
func (q *Waiters) Served(key string, grants []Grant, due time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, grant := range grants {
		if caller := q.byOwner[grant.Owner]; caller == nil {
			q.reportUnclaimed(grant.Owner)
		} else if caller.place.grant == nil || caller.place.grant.Ticket != 0 {
			caller.place.grant = &grant
			signal(caller.wakeup)
		}
	}
	for queue := q.localQueues[key]; queue != nil && due >= 0; queue = queue.next {
		queue.sharedRequests() // the first waiter may not have joined yet
		q.wakeBy(queue, time.Now().Add(script.Expiry(due)))
	}
}

// recordNotice handles a grant of ticket 0. With in 0 the waiter is requested for now. Otherwise leases end after in
// for which the first waiter of the local queue waits, so that waiter is requested for then. Called with mu held.
func (q *Waiters) recordNotice(caller *Caller, in time.Duration) {
	queue := caller.localQueue
	queue.sharedRequests()
	if in > 0 {
		q.wakeBy(queue, time.Now().Add(script.Expiry(in)))
	} else {
		q.requestFor(queue, caller)
	}
}

// PollAll requests for all waiters of a key. It is called when a call got no reply: the call may have served some of
// these waiters, and no message names them.
func (q *Waiters) PollAll(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		if queue.requests != nil {
			q.pollAll(queue)
		}
	}
}

// awaitGrants subscribes the process to grants, and awaits the subscription for subscribeGrace. If the subscription
// takes longer, the next call enqueues no waiter; later the subscription has all waiters requested for again
// (addGrantSubscription).
func (q *Waiters) awaitGrants(queue *localQueue) {
	q.mu.Lock()
	channel := ""
	if queue.first != nil {
		channel = queue.first.request.Grants
	}
	q.mu.Unlock()
	if channel == "" {
		return
	}
	pending := q.startSubscribe(channel)
	if pending == nil {
		return
	}
	timer := time.NewTimer(subscribeGrace)
	defer timer.Stop()
	select {
	case <-pending.done:
	case <-timer.C:
	case <-q.ctx.Done():
	}
}

// listenForReleases subscribes to releases for a local queue of Requesters that receives no grants: the holders are not
// of this library and hand over nothing, or this process is not subscribed to grants. After a message the waiter with
// the channel is requested for, or, if all waiters share the channel, the first. Called with mu held.
func (q *Waiters) listenForReleases(queue *localQueue, caller *Caller) {
	cancel, channel, only := &queue.requests.cancelReleases, caller.request.Channel, (*Caller)(nil)
	if caller.place.entry != nil && caller.place.entry.Channel != "" {
		cancel, channel, only = &caller.joint.cancelReleases, caller.place.entry.Channel, caller
	}
	if *cancel != nil || caller.joint.state == unlisted || channel == "" {
		return
	}
	var ctx context.Context
	ctx, *cancel = context.WithCancel(q.ctx)
	go q.receiveReleases(ctx, queue, channel, only)
}

// receiveReleases subscribes to a channel of releases, however long that takes, and handles its messages. only is the
// waiter whose channel it is; nil: all waiters share it.
func (q *Waiters) receiveReleases(ctx context.Context, queue *localQueue, channel string, only *Caller) {
	for failures := 0; ; failures++ {
		sub, err := q.subscribe(ctx, channel)
		if err == nil {
			for ; err == nil; _, err = sub.Next(ctx) {
				q.requestAfterRelease(queue, only)
			}
			if only == nil {
				sub.Close()
			} else {
				accessor.Of[accessor.Subscription](sub).Discard()
			}
			return
		}
		q.mu.Lock()
		pause := max(script.Backoff(failures), time.Until(q.grants.deniedUntil[channelKind(channel)]))
		q.mu.Unlock()
		if !script.Pause(ctx, pause) {
			return
		}
	}
}

// requestAfterRelease requests for a waiter; nil: for the first waiter of the local queue.
func (q *Waiters) requestAfterRelease(queue *localQueue, caller *Caller) {
	q.mu.Lock()
	if caller == nil {
		caller = queue.first
	}
	if caller == nil || caller.joint.state == unlisted {
		q.mu.Unlock()
		return
	}
	ctx, name := caller.ctx, caller.request.Name
	q.requestFor(queue, caller)
	q.mu.Unlock()
	q.onWakeup(ctx, name, true)
}
