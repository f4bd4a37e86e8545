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
	maxCallers = 128
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
	enqueues  bool // it enqueued its waiters
	placeless bool // they got no place
	untold    bool // no grant says when the holders are through

	cancelReleases context.CancelFunc // ends the subscription to releases; nil: there is none

	timer    *time.Timer
	due      time.Time // when it goes off; zero: it does not
	pollAt   time.Time // when the next call for all is due
	polledAt time.Time // when the last one was
}

// want puts a waiter among those to request for.
func (r *queueRequests) want(w *Caller) {
	if !w.wanted && w.state != unlisted {
		w.wanted = true
		r.wanted = append(r.wanted, w)
	}
}

// placed reports whether the waiters are in the server's queue, whose grants they hear.
func (r *queueRequests) placed() bool { return r.enqueues && !r.placeless }

// acquireShared is contend in a local queue of Requesters. While none of its members waits, every request goes out at
// once. From the first that is refused until none waits any more, newcomers queue behind, and one call at a time
// requests for many.
func (w *Caller) acquireShared() error {
	w.register(w.q.hearsGrants(w.r.Grants))
	if !w.joinIfWaiting() {
		done, err := w.try()
		if done {
			return err
		}
		w.join(w.answer, err)
	}
	for {
		if done, err := w.look(); done {
			return err
		}
		select {
		case <-w.wakeup:
		case <-w.waitContext().Done():
			return w.timeOver()
		}
	}
}

// late reports whether the time to wait is over.
func (w *Caller) late() bool { return !w.r.Until.IsZero() && !time.Now().Before(w.r.Until) }

// joinIfWaiting puts the waiter behind the members of its local queue that wait; false: there are none.
func (w *Caller) joinIfWaiting() bool {
	q, l := w.q, w.localQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.first == nil {
		return false
	}
	q.addWaiting(l, w)
	q.requestFor(l, w)
	w.told = true
	return true
}

// join has the waiter, which was refused, or got no reply, wait with the others.
func (w *Caller) join(a Answer, err error) {
	if a.Renamed {
		w.register(w.q.hearsGrants(w.r.Grants))
	}
	q, l := w.q, w.localQueue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addWaiting(l, w)
	r := l.requests
	r.enqueues = w.entry.hears
	if err != nil && r.failures == 0 {
		r.failures, r.silentSince = 1, w.silentSince // the next request is not to follow at once
	}
	if err != nil || a.Ticket == 0 && !w.entry.hears {
		r.want(w)
	}
	q.recordRefusal(l, w, a, err)
}

// recordRefusal records the answer to a waiter that goes on waiting, and requests again if there is a reason. Called
// with mu held.
func (q *Waiters) recordRefusal(l *localQueue, w *Caller, a Answer, err error) {
	r := l.requests
	if w.state = waiting; err == nil && !a.Again {
		w.told = true
		r.placeless, r.untold = r.enqueues && a.Ticket == 0, a.Foreign
		if a.Foreign || !w.entry.hears && !w.wanted {
			q.subscribeReleases(l, w)
		}
	} else {
		r.want(w)
	}
	q.startRequests(l)
}

// addWaiting is called with mu held.
func (q *Waiters) addWaiting(l *localQueue, w *Caller) {
	r := l.sharedRequests()
	if l.first == nil {
		r.polledAt = time.Now()
		r.pollAt = r.polledAt.Add(q.pollInterval(r))
	}
	l.Add(w, false)
	w.state = waiting
	q.wakeBy(l, r.pollAt)
}

// sharedRequests returns the requests of a local queue of Requesters. Called with mu held.
func (l *localQueue) sharedRequests() *queueRequests {
	if l.requests == nil {
		l.requests = &queueRequests{}
	}
	return l.requests
}

// leaveRequests takes a waiter out that leaves. Called with mu held.
func (q *Waiters) leaveRequests(l *localQueue, w *Caller) {
	r, wasFirst := l.requests, l.first == w
	l.Remove(w)
	w.state = unlisted
	switch {
	case l.first == nil:
		r.timer.Stop()
		if r.cancelReleases != nil {
			r.cancelReleases()
		}
		*r = queueRequests{running: r.running, enqueues: r.enqueues, timer: r.timer}
	case w.granted && wasFirst && !r.placed():
		q.requestFor(l, l.first) // all before it were served: there may be enough for the waiters behind
	}
}

// look reports whether the wait is over, by a reply or by a grant, and with which error.
func (w *Caller) look() (done bool, err error) {
	q, l := w.q, w.localQueue
	q.mu.Lock()
	done, err = w.done, w.err
	told, granted := w.told, w.grant != nil
	q.mu.Unlock()
	if done {
		return true, err
	}
	if granted {
		q.woken(w.ctx, w.r.Name, true)
	}
	used, doubted := w.taken()
	if used {
		return true, nil
	}
	if told {
		w.waits()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if doubted && w.state == waiting {
		w.grant = nil // the reply says more
		q.requestFor(l, w)
	}
	return false, nil
}

// timeOver ends the wait of a caller whose time is over. It awaits the reply to the call that is in flight for it,
// for a moment. Without that a release would be pending until the call can surely run no more, and a Close that waits
// for that ("Close while it is being granted leaves nothing" in internal/contract). A reply that has come is read in
// any case.
func (w *Caller) timeOver() error {
	q, grace := w.q, replyGrace
	if q.ctx.Err() != nil { // no caller's time is up, and Close waits in any case
		grace = max(grace, min(w.r.Reach, closingGrace))
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for late := false; ; {
		q.mu.Lock()
		switch {
		case w.state == waiting:
			w.state = deciding // no other call requests for it
		case w.state == requested && late:
			w.state = left
		}
		done, granted := w.state == deciding || w.state == left, w.done && w.err == nil
		q.mu.Unlock()
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
func (q *Waiters) pollAll(l *localQueue) {
	l.requests.polledAt = time.Now()
	for w := l.first; w != nil; w = w.behind {
		l.requests.want(w)
	}
	q.startRequests(l)
}

// requestFor requests for one waiter; without places, for all for which one call requests. Called with mu held.
func (q *Waiters) requestFor(l *localQueue, w *Caller) {
	l.requests.want(w)
	q.startRequests(l)
}

// startRequests starts the goroutine that requests, unless it runs. Called with mu held.
func (q *Waiters) startRequests(l *localQueue) {
	if r := l.requests; !r.running && len(r.wanted) > 0 && q.ctx.Err() == nil {
		r.running = true
		go q.requestAll(l)
	}
}

// requestAll requests for the waiters of a local queue, many in a call, one call at a time, until none is wanted.
func (q *Waiters) requestAll(l *localQueue) {
	for {
		q.mu.Lock()
		failures, since := l.requests.failures, l.requests.silentSince
		q.mu.Unlock()
		if failures > 0 {
			script.Pause(q.ctx, q.retryIn(failures, since))
		}
		q.awaitGrants(l)
		callers, entries, enqueue := q.nextCallers(l)
		if len(callers) == 0 {
			return
		}
		first, requester, sent := callers[0].r, callers[0].requester, time.Now() // the waiter may leave meanwhile
		replies, err := requester.RequestAll(context.WithoutCancel(q.ctx), entries, enqueue)
		switch {
		case err == nil:
			q.Silence.answered(&first)
		case script.NotAnswered(err):
			q.Silence.failed(&first, sent, err)
		}
		q.replied(l, callers, entries, sent, replies, err)
	}
}

// nextCallers takes the waiters for which the next call requests. It returns none, and requestAll ends, if none is
// wanted, or the one that is wanted looks at a grant: it starts requestAll again.
func (q *Waiters) nextCallers(l *localQueue) (callers []*Caller, entries []QueueEntry, enqueue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := l.requests
	if len(r.wanted) > 0 && l.first != nil && q.ctx.Err() == nil {
		subscription := q.grantSubs[l.first.r.Grants]
		enqueue = subscription != nil
		if enqueue && !r.placeless {
			callers = r.takeWanted()
		} else {
			callers = l.takeFirst()
		}
		for _, w := range callers {
			w.hear(subscription)
			w.state, w.wanted, w.queued = requested, false, w.queued || enqueue
			entries = append(entries, *w.entry)
		}
	}
	if r.running = len(callers) > 0; r.running {
		r.enqueues = enqueue
	}
	return callers, entries, enqueue
}

// takeWanted takes waiters that are wanted, first come first.
func (r *queueRequests) takeWanted() (callers []*Caller) {
	var rest []*Caller
	for i, w := range r.wanted {
		if len(callers) == maxCallers {
			rest = append(rest, r.wanted[i:]...)
			break
		}
		switch w.state {
		case waiting:
			callers = append(callers, w)
		case requested, reading, deciding:
			rest = append(rest, w)
		}
	}
	r.wanted = rest
	return callers
}

// takeFirst takes the first in the local queue, wanted or not: no queue on the server keeps their order, so only a call
// that begins with the first does. It takes none behind a waiter for which no call may request now.
func (l *localQueue) takeFirst() (callers []*Caller) {
	for _, w := range l.requests.wanted {
		w.wanted = false
	}
	l.requests.wanted = nil
	for w := l.first; w != nil && len(callers) < maxCallers; w = w.behind {
		if w.state != waiting {
			l.requests.want(w)
			break
		}
		callers = append(callers, w)
	}
	return callers
}

// replied reads the replies of a call for its waiters, none of which touches its Requester meanwhile. After a failure
// the waiters are requested for again, in one call, before those that came later: an outage costs a process one request
// at a time however many wait.
func (q *Waiters) replied(l *localQueue, callers []*Caller, entries []QueueEntry, sent time.Time, replies any,
	err error) {
	q.mu.Lock()
	r := l.requests
	failed := err != nil && script.NotAnswered(err)
	if !failed {
		r.failures = 0
	} else if r.failures++; r.failures == 1 {
		r.silentSince = sent
	}
	var again []*Caller
	for i, w := range callers {
		if w.state != requested {
			q.unclaimed(entries[i].Owner) // it may have a place now, or what it asked for
			callers[i] = nil
			continue
		}
		w.state = reading
		if failed && !w.wanted {
			w.wanted = true
			again = append(again, w)
		}
	}
	r.wanted = append(again, r.wanted...)
	q.mu.Unlock()
	for i, w := range callers {
		if w != nil {
			w.read(replies, i, err)
		}
	}
}

// read takes in what a call learned about the waiter.
func (w *Caller) read(replies any, i int, err error) {
	q, l := w.q, w.localQueue
	answer, err := w.requester.Reply(replies, i, err)
	w.learn(answer, err)
	if answer.Renamed {
		w.register(q.hearsGrants(w.r.Grants))
	}
	served := err == nil && answer.Granted || err != nil && !script.NotAnswered(err)
	switch {
	case served || err == nil && answer.Again:
	case err == nil:
		w.note(answer.Left, nil)
	default:
		w.note(-1, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if served {
		w.state, w.done, w.err = deciding, true, err
	} else {
		q.recordRefusal(l, w, answer, err)
	}
	signal(w.wakeup)
}

// pollInterval is how long after one pollAll the next is due. Entries in the server's queue of processes that send no
// call are passed over after two and a half polls; any call of a process keeps all of its entries.
func (q *Waiters) pollInterval(r *queueRequests) time.Duration {
	d := min(q.pollCap, MaxPoll)
	if r.placeless {
		d /= placelessPolls
	}
	return d - rand.N(d/10+1)
}

// wakeBy has the timer of the local queue go off at an instant at the latest. Called with mu held.
func (q *Waiters) wakeBy(l *localQueue, at time.Time) {
	r := l.requests
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(time.Until(at), func() { q.timeUp(l) })
	case r.due.IsZero() || at.Before(r.due):
		r.timer.Reset(time.Until(at))
	default:
		return
	}
	r.due = at
}

// timeUp requests for all waiters if that is due; otherwise for the first: leases end that it waits for, and a call
// that requests has the server serve all.
func (q *Waiters) timeUp(l *localQueue) {
	q.mu.Lock()
	r, now := l.requests, time.Now()
	if r.due.IsZero() || now.Before(r.due) { // it was stopped or set anew as it went off
		q.mu.Unlock()
		return
	}
	r.due = time.Time{}
	first := l.first
	if first == nil {
		q.mu.Unlock()
		return
	}
	ctx, name, requests := first.ctx, first.r.Name, true
	if now.Before(r.pollAt) {
		q.requestFor(l, first)
	} else {
		r.pollAt = now.Add(q.pollInterval(r))
		if requests = !q.sleepOn(l); requests {
			q.pollAll(l)
		}
	}
	q.wakeBy(l, r.pollAt)
	q.mu.Unlock()
	if requests {
		q.woken(ctx, name, false)
	}
}

// Served takes in what a call of this process learned of waiters for a key besides those that it requested for: they
// were served by it. grants: each counts from the send of that call. due: how long after now to request for the first
// in the local queue, which is this process's, because then enough leases end for it; negative: not known, or it is
// another's.
func (q *Waiters) Served(key string, grants []Grant, due time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range grants {
		if w := q.byOwner[g.Owner]; w == nil {
			q.unclaimed(g.Owner)
		} else if w.grant == nil || w.grant.Ticket != 0 {
			w.grant = &g
			signal(w.wakeup)
		}
	}
	for l := q.localQueues[key]; l != nil && due >= 0; l = l.next {
		l.sharedRequests() // the first that waits may have yet to join
		q.wakeBy(l, time.Now().Add(script.Expiry(due)))
	}
}

// notified is called with a grant of ticket 0: there is a reason to request for a waiter in a while. 0: now, and for
// this very one. Otherwise leases end then for which the first in the local queue waits. Called with mu held.
func (q *Waiters) notified(w *Caller, in time.Duration) {
	l := w.localQueue
	l.sharedRequests()
	if in > 0 {
		q.wakeBy(l, time.Now().Add(script.Expiry(in)))
	} else {
		q.requestFor(l, w)
	}
}

// PollAll requests for all waiters for a key: a call that may have served some of them was not answered, and nothing
// else tells them.
func (q *Waiters) PollAll(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		if l.requests != nil {
			q.pollAll(l)
		}
	}
}

// awaitGrants has the process listen for grants, and waits for that for a moment. A call goes without places if it
// takes longer; once it is there all are requested for again (listening).
func (q *Waiters) awaitGrants(l *localQueue) {
	q.mu.Lock()
	channel := ""
	if l.first != nil {
		channel = l.first.r.Grants
	}
	q.mu.Unlock()
	if channel == "" {
		return
	}
	subscribing := q.listening(channel)
	if subscribing == nil {
		return
	}
	timer := time.NewTimer(subscribeGrace)
	defer timer.Stop()
	select {
	case <-subscribing.done:
	case <-timer.C:
	case <-q.ctx.Done():
	}
}

// subscribeReleases listens to releases for a local queue of Requesters, where it does not hear of them otherwise: the
// holders are not of this library and hand over nothing, or this process hears no grants. A message requests for the
// first in the local queue. Called with mu held.
func (q *Waiters) subscribeReleases(l *localQueue, w *Caller) {
	if l.requests.cancelReleases != nil || w.state == unlisted || w.r.Channel == "" {
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	l.requests.cancelReleases = cancel
	go q.receiveReleases(ctx, l, w.r.Channel)
}

func (q *Waiters) receiveReleases(ctx context.Context, l *localQueue, channel string) {
	for failures := 0; ; failures++ {
		sub, err := q.subscribe(ctx, channel)
		if err == nil {
			for ; err == nil; _, err = sub.Next(ctx) {
				q.released(l)
			}
			sub.Close()
			return
		}
		q.mu.Lock()
		pause := max(script.Backoff(failures), time.Until(q.denied[kindOf(channel)]))
		q.mu.Unlock()
		if !script.Pause(ctx, pause) {
			return
		}
	}
}

// released requests for the first in the local queue.
func (q *Waiters) released(l *localQueue) {
	q.mu.Lock()
	first := l.first
	if first == nil {
		q.mu.Unlock()
		return
	}
	ctx, name := first.ctx, first.r.Name
	q.requestFor(l, first)
	q.mu.Unlock()
	q.woken(ctx, name, true)
}
