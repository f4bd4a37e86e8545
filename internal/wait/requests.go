package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Requester is a Taker whose local queue has no contender: several can be granted at once, every waiter may have a
// place of its own in the server's queue, and one call requests for many. The package comment, under "Queue
// requests", has the protocol.
type Requester interface {
	Taker
	// RequestAll requests for several waiters in one call, in their order. enqueue: the call enqueues each that cannot be
	// served. Otherwise it serves none after a waiter that it cannot serve, because no queue keeps their order. Grants to
	// other waiters in the same reply go to Waiters.Served.
	//
	// It is called on any Requester of the local queue, also while that waiter leaves: it uses nothing of a waiter but its
	// QueueEntry.
	RequestAll(ctx context.Context, all []QueueEntry, enqueue bool) (replies any, err error)
	// Reply returns what Ask would have returned for this waiter, the i-th in a call of RequestAll.
	Reply(replies any, i int, err error) (Answer, error)
}

const (
	// maxCallers is for how many waiters one call requests.
	maxBatch = 128
	// subscribeGrace is how long a request awaits the first subscription to grants before it goes without.
	subscribeGrace = 50 * time.Millisecond
	// replyGrace is how long a waiter whose time is over awaits the reply to a call that is in flight. A server that is
	// well replies long before.
	replyGrace   = 20 * time.Millisecond
	closingGrace = 2 * time.Second // the same when the client closes
)

// queueRequests are the calls that request for many waiters of a local queue, and what they have learned. Guarded by
// Waiters.mu.
type queueRequests struct {
	wanted      []*Caller // to be requested for, in order; some may have left
	running     bool      // a goroutine makes the calls, one at a time
	failures    int       // in a row
	silentSince time.Time // when the first of these was sent

	// What the last call and its reply were.
	enqueues       bool // it enqueued its waiters
	placeless      bool // they got no place
	releasesSilent bool // no grant says when the holders are through

	cancelReleases context.CancelFunc // ends the subscription to releases; nil: there is none

	timer    *time.Timer
	timerAt  time.Time // when it goes off; zero: it does not
	pollAt   time.Time // when the next call for all is due
	polledAt time.Time // when the last one was
}

// want puts a waiter among those to request for.
func (r *queueRequests) want(caller *Caller) {
	if !caller.isWanted && caller.state != unlisted {
		caller.isWanted = true
		r.wanted = append(r.wanted, caller)
	}
}

// placed reports whether the waiters are in the server's queue, whose grants they hear.
func (r *queueRequests) havePlaces() bool { return r.enqueues && !r.placeless }

// acquireShared is contend in a local queue of Requesters. While none of its members waits, every request goes out at
// once. From the first that is refused until none waits any more, newcomers queue behind, and one call at a time
// requests for many.
func (w *Caller) contendTogether() error {
	w.register(w.waiters.isSubscribed(w.request.Grants))
	if !w.joinIfWaiting() {
		done, err := w.try()
		if done {
			return err
		}
		w.join(w.answer, err)
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

// late reports whether the time to wait is over.
func (w *Caller) isTimeUp() bool {
	return !w.request.Until.IsZero() && !time.Now().Before(w.request.Until)
}

// joinIfWaiting puts the waiter behind the members of its local queue that wait; false: there are none.
func (w *Caller) joinIfWaiting() bool {
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if queue.first == nil {
		return false
	}
	waiters.addWaiting(queue, w)
	waiters.requestFor(queue, w)
	w.mustWait = true
	return true
}

// join has the waiter, which was refused, or got no reply, wait with the others.
func (w *Caller) join(answer Answer, err error) {
	if answer.Renamed {
		w.register(w.waiters.isSubscribed(w.request.Grants))
	}
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	waiters.addWaiting(queue, w)
	requests := queue.requests
	requests.enqueues = w.entry.hearsGrants
	if err != nil && requests.failures == 0 {
		requests.failures, requests.silentSince = 1, w.silentSince // the next request is not to follow at once
	}
	if err != nil || answer.Ticket == 0 && !w.entry.hearsGrants {
		requests.want(w)
	}
	waiters.keepWaiting(queue, w, answer, err)
}

// recordRefusal records the answer to a waiter that goes on waiting, and requests again if there is a reason. Called
// with mu held.
func (q *Waiters) keepWaiting(queue *localQueue, caller *Caller, answer Answer, err error) {
	requests := queue.requests
	if caller.state = waiting; err == nil && !answer.Again {
		caller.mustWait = true
		requests.placeless, requests.releasesSilent = requests.enqueues && answer.Ticket == 0, answer.Foreign
		if answer.Foreign || !caller.entry.hearsGrants && !caller.isWanted {
			q.listenForReleases(queue, caller)
		}
	} else {
		requests.want(caller)
	}
	q.startRequests(queue)
}

// addWaiting is called with mu held.
func (q *Waiters) addWaiting(queue *localQueue, caller *Caller) {
	requests := queue.sharedRequests()
	if queue.first == nil {
		requests.polledAt = time.Now()
		requests.pollAt = requests.polledAt.Add(q.pollInterval(requests))
	}
	queue.Add(caller, false)
	caller.state = waiting
	q.wakeBy(queue, requests.pollAt)
}

// sharedRequests returns the requests of a local queue of Requesters. Called with mu held.
func (l *localQueue) sharedRequests() *queueRequests {
	if l.requests == nil {
		l.requests = &queueRequests{}
	}
	return l.requests
}

// leaveRequests takes a waiter out that leaves. Called with mu held.
func (q *Waiters) leaveRequests(queue *localQueue, caller *Caller) {
	requests, wasFirst := queue.requests, queue.first == caller
	queue.Remove(caller)
	caller.state = unlisted
	switch {
	case queue.first == nil:
		requests.timer.Stop()
		if requests.cancelReleases != nil {
			requests.cancelReleases()
		}
		*requests = queueRequests{running: requests.running, enqueues: requests.enqueues, timer: requests.timer}
	case caller.granted && wasFirst && !requests.havePlaces():
		q.requestFor(queue, queue.first) // all before it were served: there may be enough for the waiters behind
	}
}

// look reports whether the wait is over, by a reply or by a grant, and with which error.
func (w *Caller) checkOutcome() (done bool, err error) {
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	done, err = w.done, w.doneErr
	told, granted := w.mustWait, w.grant != nil
	waiters.mu.Unlock()
	if done {
		return true, err
	}
	if granted {
		waiters.onWakeup(w.ctx, w.request.Name, true)
	}
	used, doubted := w.takeGrant()
	if used {
		return true, nil
	}
	if told {
		w.reportWaiting()
	}
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if doubted && w.state == waiting {
		w.grant = nil // the reply says more
		waiters.requestFor(queue, w)
	}
	return false, nil
}

// timeOver ends the wait of a caller whose time is over. It awaits the reply to the call that is in flight for it,
// for a moment. Without that a release would be pending until the call can surely run no more, and a Close that waits
// for that ("Close while it is being granted leaves nothing" in internal/contract). A reply that has come is read in
// any case.
func (w *Caller) giveUpTogether() error {
	waiters, grace := w.waiters, replyGrace
	if waiters.ctx.Err() != nil { // no caller's time is up, and Close waits in any case
		grace = max(grace, min(w.request.Reach, closingGrace))
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for late := false; ; {
		waiters.mu.Lock()
		switch {
		case w.state == waiting:
			w.state = deciding // no other call requests for it
		case w.state == requested && late:
			w.state = abandoned
		}
		done, granted := w.state == deciding || w.state == abandoned, w.done && w.doneErr == nil
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
			late = true
		}
	}
}

// pollAll requests for all that wait. Called with mu held.
func (q *Waiters) pollAll(queue *localQueue) {
	queue.requests.polledAt = time.Now()
	for caller := queue.first; caller != nil; caller = caller.behind {
		queue.requests.want(caller)
	}
	q.startRequests(queue)
}

// requestFor requests for one waiter; without places, for all for which one call requests. Called with mu held.
func (q *Waiters) requestFor(queue *localQueue, caller *Caller) {
	queue.requests.want(caller)
	q.startRequests(queue)
}

// startRequests starts the goroutine that requests, unless it runs. Called with mu held.
func (q *Waiters) startRequests(queue *localQueue) {
	if requests := queue.requests; !requests.running && len(requests.wanted) > 0 && q.ctx.Err() == nil {
		requests.running = true
		go q.requestAll(queue)
	}
}

// requestAll requests for the waiters of a local queue, many in a call, one call at a time, until none is wanted.
func (q *Waiters) requestAll(queue *localQueue) {
	for {
		q.mu.Lock()
		failures, since := queue.requests.failures, queue.requests.silentSince
		q.mu.Unlock()
		if failures > 0 {
			script.Pause(q.ctx, q.retryIn(failures, since))
		}
		q.awaitGrants(queue)
		callers, entries, enqueue := q.nextCallers(queue)
		if len(callers) == 0 {
			return
		}
		first, requester, sent := callers[0].request, callers[0].requester, time.Now() // the waiter may leave meanwhile
		replies, err := requester.RequestAll(context.WithoutCancel(q.ctx), entries, enqueue)
		switch {
		case err == nil:
			q.Silence.recordAnswer(&first)
		case script.NotAnswered(err):
			q.Silence.recordFailure(&first, sent, err)
		}
		q.recordReplies(queue, callers, entries, sent, replies, err)
	}
}

// nextCallers takes the waiters for which the next call requests. It returns none, and requestAll ends, if none is
// wanted, or the one that is wanted looks at a grant: it starts requestAll again.
func (q *Waiters) nextCallers(queue *localQueue) (callers []*Caller, entries []QueueEntry, enqueue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	requests := queue.requests
	if len(requests.wanted) > 0 && queue.first != nil && q.ctx.Err() == nil {
		subscription := q.grantSubs[queue.first.request.Grants]
		enqueue = subscription != nil
		if enqueue && !requests.placeless {
			callers = requests.takeWanted()
		} else {
			callers = queue.takeFirst()
		}
		for _, caller := range callers {
			caller.useSubscription(subscription)
			caller.state, caller.isWanted, caller.mayBeQueued = requested, false, caller.mayBeQueued || enqueue
			entries = append(entries, *caller.entry)
		}
	}
	if requests.running = len(callers) > 0; requests.running {
		requests.enqueues = enqueue
	}
	return callers, entries, enqueue
}

// takeWanted takes waiters that are wanted, first come first.
func (r *queueRequests) takeWanted() (callers []*Caller) {
	var rest []*Caller
	for i, caller := range r.wanted {
		if len(callers) == maxBatch {
			rest = append(rest, r.wanted[i:]...)
			break
		}
		switch caller.state {
		case waiting:
			callers = append(callers, caller)
		case requested, reading, deciding:
			rest = append(rest, caller)
		}
	}
	r.wanted = rest
	return callers
}

// takeFirst takes the first in the local queue, wanted or not: no queue on the server keeps their order, so only a call
// that begins with the first does. It takes none behind a waiter for which no call may request now.
func (l *localQueue) takeFirst() (callers []*Caller) {
	for _, caller := range l.requests.wanted {
		caller.isWanted = false
	}
	l.requests.wanted = nil
	for caller := l.first; caller != nil && len(callers) < maxBatch; caller = caller.behind {
		if caller.state != waiting {
			l.requests.want(caller)
			break
		}
		callers = append(callers, caller)
	}
	return callers
}

// replied reads the replies of a call for its waiters, none of which touches its Requester meanwhile. After a failure
// the waiters are requested for again, in one call, before those that came later: an outage costs a process one request
// at a time however many wait.
func (q *Waiters) recordReplies(queue *localQueue, callers []*Caller, entries []QueueEntry, sent time.Time, replies any,
	err error) {
	q.mu.Lock()
	requests := queue.requests
	failed := err != nil && script.NotAnswered(err)
	if !failed {
		requests.failures = 0
	} else if requests.failures++; requests.failures == 1 {
		requests.silentSince = sent
	}
	var again []*Caller
	for i, caller := range callers {
		if caller.state != requested {
			q.reportUnclaimed(entries[i].Owner) // it may have a place now, or what it asked for
			callers[i] = nil
			continue
		}
		caller.state = reading
		if failed && !caller.isWanted {
			caller.isWanted = true
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

// read takes in what a call learned about the waiter.
func (w *Caller) readReply(replies any, i int, err error) {
	waiters, queue := w.waiters, w.localQueue
	answer, err := w.requester.Reply(replies, i, err)
	w.recordTicket(answer, err)
	if answer.Renamed {
		w.register(waiters.isSubscribed(w.request.Grants))
	}
	served := err == nil && answer.Granted || err != nil && !script.NotAnswered(err)
	switch {
	case served || err == nil && answer.Again:
	case err == nil:
		w.recordFinding(answer.Left, nil)
	default:
		w.recordFinding(-1, err)
	}
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	if served {
		w.state, w.done, w.doneErr = deciding, true, err
	} else {
		waiters.keepWaiting(queue, w, answer, err)
	}
	signal(w.wakeup)
}

// pollInterval is how long after one pollAll the next is due. Entries in the server's queue of processes that send no
// call are passed over after two and a half polls; any call of a process keeps all of its entries.
func (q *Waiters) pollInterval(requests *queueRequests) time.Duration {
	sleep := min(q.pollCap, MaxPoll)
	if requests.placeless {
		sleep /= pollsWithoutPlace
	}
	return sleep - rand.N(sleep/10+1)
}

// wakeBy has the timer of the local queue go off at an instant at the latest. Called with mu held.
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

// timeUp requests for all waiters if that is due; otherwise for the first: leases end that it waits for, and a call
// that requests has the server serve all.
func (q *Waiters) onTimer(queue *localQueue) {
	q.mu.Lock()
	requests, now := queue.requests, time.Now()
	if requests.timerAt.IsZero() || now.Before(requests.timerAt) { // it was stopped or set anew as it went off
		q.mu.Unlock()
		return
	}
	requests.timerAt = time.Time{}
	first := queue.first
	if first == nil {
		q.mu.Unlock()
		return
	}
	ctx, name, pollsAll := first.ctx, first.request.Name, true
	if now.Before(requests.pollAt) {
		q.requestFor(queue, first)
	} else {
		requests.pollAt = now.Add(q.pollInterval(requests))
		if pollsAll = !q.allSkipPoll(queue); pollsAll {
			q.pollAll(queue)
		}
	}
	q.wakeBy(queue, requests.pollAt)
	q.mu.Unlock()
	if pollsAll {
		q.onWakeup(ctx, name, false)
	}
}

// Served takes in what a call of this process learned of waiters for a key besides those that it requested for: they
// were served by it. grants: each counts from the send of that call. due: how long after now to request for the first
// in the local queue, which is this process's, because then enough leases end for it; negative: not known, or it is
// another's.
func (q *Waiters) Served(key string, grants []Grant, due time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, grant := range grants {
		if caller := q.byOwner[grant.Owner]; caller == nil {
			q.reportUnclaimed(grant.Owner)
		} else if caller.grant == nil || caller.grant.Ticket != 0 {
			caller.grant = &grant
			signal(caller.wakeup)
		}
	}
	for queue := q.localQueues[key]; queue != nil && due >= 0; queue = queue.next {
		queue.sharedRequests() // the first that waits may have yet to join
		q.wakeBy(queue, time.Now().Add(script.Expiry(due)))
	}
}

// notified is called with a grant of ticket 0: there is a reason to request for a waiter in a while. 0: now, and for
// this very one. Otherwise leases end then for which the first in the local queue waits. Called with mu held.
func (q *Waiters) recordNotice(caller *Caller, in time.Duration) {
	queue := caller.localQueue
	queue.sharedRequests()
	if in > 0 {
		q.wakeBy(queue, time.Now().Add(script.Expiry(in)))
	} else {
		q.requestFor(queue, caller)
	}
}

// PollAll requests for all waiters for a key: a call that may have served some of them was not answered, and nothing
// else tells them.
func (q *Waiters) PollAll(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		if queue.requests != nil {
			q.pollAll(queue)
		}
	}
}

// awaitGrants has the process listen for grants, and waits for that for a moment. A call goes without places if it
// takes longer; once it is there all are requested for again (listening).
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

// subscribeReleases listens to releases for a local queue of Requesters, where it does not hear of them otherwise: the
// holders are not of this library and hand over nothing, or this process hears no grants. A message requests for the
// first in the local queue. Called with mu held.
func (q *Waiters) listenForReleases(queue *localQueue, caller *Caller) {
	if queue.requests.cancelReleases != nil || caller.state == unlisted || caller.request.Channel == "" {
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	queue.requests.cancelReleases = cancel
	go q.receiveReleases(ctx, queue, caller.request.Channel)
}

func (q *Waiters) receiveReleases(ctx context.Context, queue *localQueue, channel string) {
	for failures := 0; ; failures++ {
		sub, err := q.subscribe(ctx, channel)
		if err == nil {
			for ; err == nil; _, err = sub.Next(ctx) {
				q.requestAfterRelease(queue)
			}
			sub.Close()
			return
		}
		q.mu.Lock()
		pause := max(script.Backoff(failures), time.Until(q.deniedUntil[channelKind(channel)]))
		q.mu.Unlock()
		if !script.Pause(ctx, pause) {
			return
		}
	}
}

// released requests for the first in the local queue.
func (q *Waiters) requestAfterRelease(queue *localQueue) {
	q.mu.Lock()
	first := queue.first
	if first == nil {
		q.mu.Unlock()
		return
	}
	ctx, name := first.ctx, first.request.Name
	q.requestFor(queue, first)
	q.mu.Unlock()
	q.onWakeup(ctx, name, true)
}
