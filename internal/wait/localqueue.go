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
	refused int       // how many were refused what they wait for
	freeBy  time.Time // when the holder's lease ends, by the last answer; zero if unknown
	failure error     // why the server could not be asked, when that was last tried; nil if it answered

	sharedAnswers
	requests *queueRequests // of Requesters; nil while none of them ever waited
	pace     *pace          // of Paced waiters
}

// enter makes the waiter, and puts it into its local queue.
func (q *Waiters) enter(ctx context.Context, r Request) (w *Caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.freeCallers); n > 0 {
		w, q.freeCallers = q.freeCallers[n-1], q.freeCallers[:n-1]
	} else {
		w = &Caller{}
	}
	w.q, w.r, w.ctx, w.known = q, r, ctx, -1
	w.reported = r.Reported || r.Mode == Cohort
	if r.Mode != Cohort { // the callers for which it asks are listed
		w.call.of = w
		q.calls.Add(&w.call, false)
	}
	if r.Mode.alone() {
		return w
	}
	l := q.localQueues[r.QueueKey]
	for l != nil && l.manner != r.Manner {
		l = l.next
	}
	if l == nil {
		if n := len(q.freeQueues); n > 0 {
			l, q.freeQueues = q.freeQueues[n-1], q.freeQueues[:n-1]
		} else {
			l = &localQueue{}
		}
		l.manner, l.next = r.Manner, q.localQueues[r.QueueKey]
		q.localQueues[r.QueueKey] = l
	}
	if w.wakeup == nil {
		w.wakeup = make(chan struct{}, 1)
	}
	l.members++
	w.localQueue = l
	w.requester, _ = r.Taker.(Requester)
	if !r.FreeBy.IsZero() {
		l.refused, l.freeBy, l.failure = max(l.refused, 1), r.FreeBy, nil
	}
	switch {
	case w.queues():
		l.Add(w, false)
		l.contender = l.first
	case r.Mode == Cohort:
		l.contender = w
		l.cohorts++
	}
	return w
}

// exit leaves the local queue, and leaves to the Taker what the server may still have of the waiter. The waiter is not
// used after this.
func (w *Caller) exit() {
	q, r := w.q, w.r
	owed, after := false, time.Time{}
	q.mu.Lock()
	shared := w.state != unlisted // a call for several may still refer to it
	if r.Mode != Cohort {
		q.calls.Remove(&w.call)
	}
	if w.granted && w.named {
		q.handOvers++
	}
	if w.localQueue != nil {
		after, owed = w.finish(w.granted)
		w.leaveQueue(w.localQueue)
	}
	if len(q.freeCallers) < spare && !shared {
		drain(w.wakeup)
		*w = Caller{wakeup: w.wakeup}
		q.freeCallers = append(q.freeCallers, w)
	}
	q.mu.Unlock()
	if owed {
		r.Taker.ReleaseLater(after)
	}
}

// leaveQueue takes the waiter out of its local queue, and ends the queue with its last member. Called with mu held.
func (w *Caller) leaveQueue(l *localQueue) {
	q, r := w.q, w.r
	switch {
	case w.state != unlisted:
		q.leaveRequests(l, w)
	case w.queues():
		l.Remove(w)
		if l.contender == w && l.first != nil {
			signal(l.first.wakeup)
		}
		l.contender = l.first
	case l.contender == w:
		l.contender = nil
	}
	switch {
	case r.Mode == Cohort: // the callers for which it asked stay refused
		l.cohorts--
	case w.refused:
		l.refused--
	}
	if r.Mode == Paced && l.pace != nil {
		l.pace.leaves(w)
		*q.bounds.of(r.QueueKey) = l.pace.bound
	}
	if l.members--; l.members > 0 {
		return
	}
	q.removeQueue(r.QueueKey, l)
	if len(q.freeQueues) < spare && l.requests == nil { // a request or a timer may still refer to it
		*l = localQueue{}
		q.freeQueues = append(q.freeQueues, l)
	}
}

// removeQueue takes an empty local queue from the local queues of its key. Called with mu held.
func (q *Waiters) removeQueue(key string, l *localQueue) {
	before := q.localQueues[key]
	switch {
	case before != l:
		for before.next != l {
			before = before.next
		}
		before.next = l.next
	case l.next != nil:
		q.localQueues[key] = l.next
	default:
		delete(q.localQueues, key)
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// Wake is called when this process has just released what the waiters of a key wait for. It wakes the contenders, one
// of each manner, unless they hear of the release anyway.
func (q *Waiters) Wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		if r := l.requests; r != nil && !r.placed() {
			q.pollAll(l)
		}
		if w := l.contender; w != nil && !w.hearsReleases() {
			signal(w.wakeup)
		}
	}
}

// hearsReleases reports whether the contender hears of a release without a wake-up. Called with mu held.
func (w *Caller) hearsReleases() bool {
	if w.entry != nil {
		return w.ticket != 0 && w.entry.hears
	}
	return w.subscribed
}

// signal wakes the waiter that sleeps on c, or will.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// WakeAll wakes the contenders in the local queues of a key, also those that hear of releases: they ask again for a
// waiter that has just come.
func (q *Waiters) WakeAll(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		if l.contender != nil {
			signal(l.contender.wakeup)
		}
	}
}

// Members returns how many calls stand in the local queues of a key.
func (q *Waiters) Members(key string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		n += l.members - l.cohorts
	}
	return n
}

// waiting reports whether any member of the local queues of a key was refused what it waits for.
func (q *Waiters) waiting(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		if l.refused > 0 {
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
	n := Census{LocalQueues: len(q.localQueues)}
	for _, l := range q.localQueues {
		for ; l != nil; l = l.next {
			if l.refused > 0 {
				n.Waiting++
				break
			}
		}
	}
	return n
}
