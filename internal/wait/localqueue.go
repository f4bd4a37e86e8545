package wait

import (
	"context"
	"time"
)

// localQueue holds the waiters of one key that wait in one manner, first come first served. It exists only while there
// are any. Waiters that differ in key or manner must not queue behind each other: a caller that waits for one thing
// while it holds another would wait for itself, and a waiter whose manner gives it little chance, such as one that
// polls among others that queue, would keep back the waiters behind it.
type localQueue struct {
	manner  string
	next    *localQueue // of the same key
	members int
	cohorts int // members that make requests for others, and are no calls

	// The waiters in the order in which they came: of a FIFO queue all, of a queue of Requesters those that were refused,
	// or came while others had been. first is the contender of a FIFO queue.
	List[*Caller]
	contender *Caller // a release wakes it; nil in a queue whose waiters hear of releases each for itself

	// What the requests of the members have found out.
	refusedCount int       // how many were refused what they wait for
	freeAt       time.Time // when the holder's lease ends, by the last answer; zero if unknown
	lastErr      error     // why the server could not be asked, when that was last tried; nil if it answered

	sharedAnswers
	requests *queueRequests // of Requesters; nil while none of them ever waited
	pace     *requestPace   // of Paced waiters
}

// enter makes the waiter, and puts it into its local queue.
func (q *Waiters) enterLocalQueue(ctx context.Context, request Request) (caller *Caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.freeCallers); n > 0 {
		caller, q.freeCallers = q.freeCallers[n-1], q.freeCallers[:n-1]
	} else {
		caller = &Caller{}
	}
	caller.waiters, caller.request, caller.ctx, caller.leaseLeft = q, request, ctx, -1
	caller.waitReported = request.Reported || request.Mode == Cohort
	if request.Mode != Cohort { // the callers for which it asks are listed
		caller.call.caller = caller
		q.calls.Add(&caller.call, false)
	}
	if request.Mode.isAlone() {
		return caller
	}
	queue := q.localQueues[request.QueueKey]
	for queue != nil && queue.manner != request.Manner {
		queue = queue.next
	}
	if queue == nil {
		if last := len(q.freeQueues) - 1; last >= 0 {
			queue, q.freeQueues = q.freeQueues[last], q.freeQueues[:last]
		} else {
			queue = &localQueue{}
		}
		queue.manner, queue.next = request.Manner, q.localQueues[request.QueueKey]
		q.localQueues[request.QueueKey] = queue
	}
	if caller.wakeup == nil {
		caller.wakeup = make(chan struct{}, 1)
	}
	queue.members++
	caller.localQueue = queue
	caller.requester, _ = request.Taker.(Requester)
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

// exit leaves the local queue, and leaves to the Taker what the server may still have of the waiter. The waiter is not
// used after this.
func (w *Caller) exitLocalQueue() {
	waiters, request := w.waiters, w.request
	owed, after := false, time.Time{}
	waiters.mu.Lock()
	shared := w.state != unlisted // a call for several may still refer to it
	if request.Mode != Cohort {
		waiters.calls.Remove(&w.call)
	}
	if w.granted && w.handedOver {
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

// leaveQueue takes the waiter out of its local queue, and ends the queue with its last member. Called with mu held.
func (w *Caller) leaveLocalQueue(queue *localQueue) {
	waiters, request := w.waiters, w.request
	switch {
	case w.state != unlisted:
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
	case request.Mode == Cohort: // the callers for which it asked stay refused
		queue.cohorts--
	case w.isRefused:
		queue.refusedCount--
	}
	if request.Mode == Paced && queue.pace != nil {
		queue.pace.removeWaiter(w)
		*waiters.paceLimits.of(request.QueueKey) = queue.pace.limit
	}
	if queue.members--; queue.members > 0 {
		return
	}
	waiters.removeQueue(request.QueueKey, queue)
	if len(waiters.freeQueues) < maxSpares && queue.requests == nil { // a request or a timer may still refer to it
		*queue = localQueue{}
		waiters.freeQueues = append(waiters.freeQueues, queue)
	}
}

// removeQueue takes an empty local queue from the local queues of its key. Called with mu held.
func (q *Waiters) removeQueue(key string, queue *localQueue) {
	previous := q.localQueues[key]
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

// Wake is called when this process has just released what the waiters of a key wait for. It wakes the contenders, one
// of each manner, unless they hear of the release anyway.
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

// hearsReleases reports whether the contender hears of a release without a wake-up. Called with mu held.
func (w *Caller) hearsReleases() bool {
	if w.entry != nil {
		return w.ticket != 0 && w.entry.hearsGrants
	}
	return w.subscribed
}

// signal wakes the waiter that sleeps on wakeup, or ends its next sleep at once.
func signal(wakeup chan<- struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// WakeAll wakes the contenders in the local queues of a key, also those that hear of releases: they ask again for a
// waiter that has just come.
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

// waiting reports whether any member of the local queues of a key was refused what it waits for.
func (q *Waiters) anyRefused(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue := q.localQueues[key]; queue != nil; queue = queue.next {
		if queue.refusedCount > 0 {
			return true
		}
	}
	return false
}

// Census is what Waiters keeps, in numbers: nothing while nothing waits.
type Census struct {
	LocalQueues int // keys with local queues
	Waiting     int // keys in whose local queues a member was refused what it waits for
}

// Census is for tests.
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
