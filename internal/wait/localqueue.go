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
	grouped bool // the members wait for calls, which are listed in their place

	// The waiters in the order in which they came: of a FIFO queue all, of a queue of Requesters those that were refused,
	// or came while others had been. first is the contender of a FIFO queue.
	list[*waiter]
	contender *waiter // a release wakes it; nil in a queue whose waiters hear of releases each for itself

	Group
	sharedAnswers
	requests *queueRequests // of Requesters; nil while none of them ever waited
	pace     *pace          // of Paced waiters
}

// enter makes the waiter, and puts it into its local queue.
func (q *Waiters) enter(ctx context.Context, r Request) (w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.freeWaiters); n > 0 {
		w, q.freeWaiters = q.freeWaiters[n-1], q.freeWaiters[:n-1]
	} else {
		w = &waiter{}
	}
	w.q, w.r, w.ctx, w.known = q, r, ctx, -1
	if r.Group == nil {
		w.call = Call{Name: r.Name, Of: r.Of, Began: r.Began, Until: r.Until, Ctx: ctx, waiter: w, each: r.Mode == Paced}
		q.list(&w.call)
	} else {
		r.Group.asker = w
		if r.Call != nil {
			r.Call.group = r.Group
			q.list(r.Call)
		}
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
	l.grouped = r.Group != nil
	w.localQueue = l
	w.requester, _ = r.Taker.(Requester)
	if r.Group == nil {
		w.call.group = &l.Group
	}
	if w.queues() {
		l.add(w)
		l.contender = l.first
	}
	return w
}

// exit leaves the local queue, and leaves to the Taker what the server may still have of the waiter. The waiter is not
// used after this.
func (w *waiter) exit() {
	q, r := w.q, w.r
	owed, after := false, time.Time{}
	q.mu.Lock()
	shared := w.state != unlisted // a call for several may still refer to it
	if r.Group == nil {
		q.unlist(&w.call)
	} else {
		if r.Group.asker == w {
			r.Group.asker = nil
		}
		if r.Call != nil && r.Call.listed {
			q.unlist(r.Call)
		}
	}
	if w.granted && w.named {
		q.handOvers++
	}
	if w.localQueue != nil {
		after, owed = w.finish(w.granted)
		w.leaveQueue(w.localQueue)
	}
	if len(q.freeWaiters) < spare && !shared {
		drain(w.wakeup)
		*w = waiter{wakeup: w.wakeup}
		q.freeWaiters = append(q.freeWaiters, w)
	}
	q.mu.Unlock()
	if owed {
		r.Taker.ReleaseLater(after)
	}
}

// leaveQueue takes the waiter out of its local queue, and ends the queue with its last member. Called with mu held.
func (w *waiter) leaveQueue(l *localQueue) {
	q, r := w.q, w.r
	switch {
	case w.state != unlisted:
		q.leaveRequests(l, w)
	case w.queues():
		l.remove(w)
		if l.contender == w && l.first != nil {
			signal(l.first.wakeup)
		}
		l.contender = l.first
	case l.contender == w:
		l.contender = nil
	}
	if w.refused && r.Group == nil {
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
func (w *waiter) hearsReleases() bool {
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

// Members returns how many requests stand in the local queues of a key, with the contenders, but for those with a
// Group.
func (q *Waiters) Members(key string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.localQueues[key]; l != nil; l = l.next {
		if !l.grouped {
			n += l.members
		}
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
