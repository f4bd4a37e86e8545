package wait

import (
	"context"
	"time"
)

// localQueue holds the waiters of one key and one class, first come first served. It exists only while it has members.
//
// Waiters that differ in key or class must not queue behind each other. A caller that waits for one lock while it
// holds another would wait for itself. And a waiter whose class gives it little chance, such as a poller among waiters
// with entries in the server's queue, would delay the waiters behind it.
type localQueue struct {
	key     string
	class   string
	next    *localQueue // of the same key
	members int
	cohorts int // members that are cohorts, not calls
	ofFlows int // members with a flow

	// The waiters by arrival. A FIFO queue lists all, and its first waiter is the contender. A queue of Requesters lists
	// the waiters from the first refusal on.
	List[*Caller]
	contender *Caller // a release wakes it; nil if each waiter of the queue receives releases itself

	// The results of the members' requests.
	refusedCount int       // members that were refused
	freeAt       time.Time // when the holder's lease ends, by the last reply; zero: not known
	lastErr      error     // of the last request; nil if the server replied

	sharedAnswers
	requests *queueRequests // of Requesters; nil until a Requester waits
}

// enterLocalQueue returns a new waiter that is in its local queue.
func (q *Waiters) enterLocalQueue(ctx context.Context, request Request) (caller *Caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last := len(q.freeCallers) - 1; last >= 0 {
		caller, q.freeCallers = q.freeCallers[last], q.freeCallers[:last]
	} else {
		caller = &Caller{}
	}
	caller.waiters, caller.request, caller.ctx, caller.results.leaseLeft = q, request, ctx, -1
	if request.Mode != Cohort { // a cohort is no call, and its callers are in the list already
		caller.call.caller = caller
		q.calls.Add(&caller.call, false)
	}
	if request.Mode.isAlone() {
		return caller
	}
	queue := q.localQueues[request.QueueKey]
	for queue != nil && queue.class != request.QueueClass {
		queue = queue.next
	}
	if queue == nil {
		if last := len(q.freeQueues) - 1; last >= 0 {
			queue, q.freeQueues = q.freeQueues[last], q.freeQueues[:last]
		} else {
			queue = &localQueue{}
		}
		queue.key, queue.class, queue.next = request.QueueKey, request.QueueClass, q.localQueues[request.QueueKey]
		q.localQueues[request.QueueKey] = queue
	}
	if caller.wakeup == nil {
		caller.wakeup = make(chan struct{}, 1)
	}
	queue.members++
	if request.Flow != "" {
		queue.ofFlows++
	}
	caller.localQueue = queue
	caller.joint.requester, _ = request.Taker.(Requester)
	if !request.FreeBy.IsZero() {
		queue.refusedCount, queue.freeAt, queue.lastErr = max(queue.refusedCount, 1), request.FreeBy, nil
	}
	switch {
	case caller.standsBehind():
		queue.Add(caller, false)
		queue.contender = queue.first
	case request.Mode == Cohort:
		queue.contender = caller
		queue.cohorts++
	}
	return caller
}

// exitLocalQueue takes the waiter out of its local queue. If the waiter's entry or hold may still be on the server, the
// Taker releases it. The waiter is not used afterwards.
func (w *Caller) exitLocalQueue() {
	waiters, request := w.waiters, w.request
	owed, after := false, time.Time{}
	waiters.mu.Lock()
	shared := w.joint.state != unlisted // a call of RequestAll may still refer to the waiter
	if request.Mode != Cohort {
		waiters.calls.Remove(&w.call)
	}
	if w.granted && w.place.handedOver {
		waiters.handOvers++
	}
	if w.localQueue != nil {
		after, owed = w.endHandOver(w.granted)
		w.leaveLocalQueue(w.localQueue)
	}
	if len(waiters.freeCallers) < maxSpares && !shared {
		drain(w.wakeup)
		*w = Caller{wakeup: w.wakeup}
		waiters.freeCallers = append(waiters.freeCallers, w)
	}
	waiters.mu.Unlock()
	if owed {
		request.Taker.ReleaseLater(after)
	}
}

// leaveLocalQueue takes the waiter out of its local queue, and removes the queue with its last member. Called with mu
// held.
func (w *Caller) leaveLocalQueue(queue *localQueue) {
	waiters, request := w.waiters, w.request
	switch {
	case w.joint.state != unlisted:
		waiters.leaveRequests(queue, w)
	case w.standsBehind():
		queue.Remove(w)
		if queue.contender == w && queue.first != nil {
			signal(queue.first.wakeup)
		}
		queue.contender = queue.first
	case queue.contender == w:
		queue.contender = nil
	}
	switch {
	case request.Mode == Cohort: // the callers of the cohort stay refused
		queue.cohorts--
	case w.results.isRefused:
		queue.refusedCount--
	}
	if request.Flow != "" {
		queue.ofFlows--
	}
	if queue.members--; queue.members > 0 || queue.isRequesting() { // nextCallers removes a queue without members
		return
	}
	waiters.removeQueue(queue)
	// If there are requests, a call or a timer may still refer to the queue.
	if len(waiters.freeQueues) < maxSpares && queue.requests == nil {
		*queue = localQueue{}
		waiters.freeQueues = append(waiters.freeQueues, queue)
	}
}

// removeQueue removes an empty local queue from the local queues of its key. Called with mu held.
func (q *Waiters) removeQueue(queue *localQueue) {
	key, previous := queue.key, q.localQueues[queue.key]
	switch {
	case previous != queue:
		for previous.next != queue {
			previous = previous.next
		}
		previous.next = queue.next
	case queue.next != nil:
		q.localQueues[key] = queue.next
	default:
		delete(q.localQueues, key)
	}
}

// drain removes a wake-up that nobody has received.
func drain(wakeup chan struct{}) {
	select {
	case <-wakeup:
	default:
	}
}

// Wake is called when this process has released the lock, permit or latch of a key. It wakes the contenders, one of
// each class, except contenders that a message wakes.
func (q *Waiters) Wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		if requests := queue.requests; requests != nil && !requests.havePlaces() {
			q.pollAll(queue)
		}
		if caller := queue.contender; caller != nil && !caller.hearsReleases() {
			signal(caller.wakeup)
		}
	}
}

// hearsReleases reports whether a message announces a release to the contender. Called with mu held.
func (w *Caller) hearsReleases() bool {
	if w.place.entry != nil {
		return w.place.ticket != 0 && w.place.entry.hearsGrants
	}
	return w.releases.subscribed
}

// signal wakes the waiter that sleeps on wakeup, or ends its next sleep at once.
func signal(wakeup chan<- struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// WakeAll wakes all contenders of a key, also contenders that a message wakes. They make a request for a caller that
// has just come.
func (q *Waiters) WakeAll(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		if queue.contender != nil {
			signal(queue.contender.wakeup)
		}
	}
}

// Members returns how many calls stand in the local queues of a key.
func (q *Waiters) Members(key string) (members int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		members += queue.members - queue.cohorts
	}
	return members
}

// mustYield reports whether a member of a local queue of the key was refused, which a request must not overtake. If
// that member has a flow, or the request has one, the server's queue decides who overtakes whom; without places there,
// the request yields.
func (q *Waiters) mustYield(request *Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[request.QueueKey]; queue != nil; queue = queue.next {
		serverDecides := (request.Flow != "" || queue.isOfFlows()) && queue.requests != nil && queue.requests.havePlaces()
		if queue.refusedCount > 0 && !serverDecides {
			return true
		}
	}
	return false
}

// Census counts the keys that Waiters keeps. All numbers are 0 while nothing waits.
type Census struct {
	LocalQueues int // keys with local queues
	Waiting     int // keys with a member that was refused
}

// Census returns the numbers for tests.
func (q *Waiters) Census() Census {
	q.mu.Lock()
	defer q.mu.Unlock()
	census := Census{LocalQueues: len(q.localQueues)}
	for _, queue := range q.localQueues {
		for ; queue != nil; queue = queue.next {
			if queue.refusedCount > 0 {
				census.Waiting++
				break
			}
		}
	}
	return census
}
