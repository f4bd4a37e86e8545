package wait

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// localQueue holds the waiters of one key that wait in one manner. It exists only while there are any. Waiters that
// differ in key or manner must not stand behind each other: a caller that waits for one thing while it holds another
// would wait for itself, and a waiter whose manner gives it little chance, such as one that polls among others that
// queue, would keep back those behind it.
type localQueue struct {
	manner  string
	next    *localQueue         // of the same key
	headSem *semaphore.Weighted // held by the member that contends
	members int
	Group
	wakeup  chan struct{}
	each    bool // all members contend, and each hears of releases for itself
	grouped bool // its members wait for others, which are listed
	pushed  bool // the contender hears of releases without a wake-up

	contender *waiter // the one that may be in the server's queue; nil if there is none

	batchQueue *batchQueue // of a local queue of Batchers
	pace       *pace       // of one whose waiters are Paced
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
		w.call = Call{Name: r.Name, Of: r.Of, Began: r.Began, Until: r.Until, Ctx: ctx, waiter: w, each: r.Mode.each()}
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
			l = &localQueue{headSem: semaphore.NewWeighted(1), wakeup: make(chan struct{}, 1)}
		}
		l.manner, l.next = r.Manner, q.localQueues[r.QueueKey]
		q.localQueues[r.QueueKey] = l
	}
	if _, ok := r.Taker.(Batcher); !ok {
		l.batchQueue = nil // that of another local queue, which this one was before
	} else if l.batchQueue == nil {
		l.batchQueue = &batchQueue{}
	}
	l.members++
	l.each, l.grouped = r.Mode.each(), r.Group != nil
	w.localQueue = l
	if r.Group == nil {
		w.call.group = &l.Group
	}
	return w
}

// exit leaves the local queue, and leaves to the Taker what the server may still have of the waiter. The waiter is not
// used after this.
func (w *waiter) exit() {
	q, r := w.q, w.r
	owed, after := false, time.Time{}
	q.mu.Lock()
	joined := w.is == among
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
	if w.turns.trip > 0 {
		g := q.guesses.of(r.QueueKey)
		g.contenders, g.trip = w.turns.learned(w.granted), w.turns.trip
	}
	if w.localQueue != nil {
		after, owed = w.finish(w.granted)
		w.leaveQueue(w.localQueue)
	}
	if len(q.freeWaiters) < spare && !joined { // a batch queue may still refer to one that joined it
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
	if w.head && w.queues() {
		l.pushed = false
		l.headSem.Release(1)
	}
	if w.refused && r.Group == nil {
		l.refused--
	}
	if r.Mode == Paced && l.pace != nil {
		l.pace.leaves(w)
		q.guesses.of(r.QueueKey).paced = l.pace.bound
	}
	if l.batchQueue != nil {
		q.removeWaiter(l.batchQueue, w)
	}
	if l.members--; l.members > 0 {
		return
	}
	q.remove(r.QueueKey, l)
	if l.batchQueue != nil {
		l.batchQueue.stop()
	}
	if len(q.freeQueues) < spare {
		drain(l.wakeup)
		batchQueue := l.batchQueue
		if batchQueue != nil && !batchQueue.unused() {
			batchQueue = nil // its ask or a timer may still refer to it
		}
		*l = localQueue{headSem: l.headSem, wakeup: l.wakeup, batchQueue: batchQueue}
		q.freeQueues = append(q.freeQueues, l)
	}
}

// remove takes an empty local queue from the local queues of its key. Called with mu held.
func (q *Waiters) remove(key string, l *localQueue) {
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
		if c := l.batchQueue; c != nil {
			if !c.hears || c.placeless {
				q.pollAll(c)
			}
		} else if w := l.contender; w != nil {
			if w.ticket == 0 || !w.entry.hears {
				signal(w.wakeup)
			}
		} else if !l.pushed && !l.each {
			signal(l.wakeup)
		}
	}
}

// signal wakes the waiter that sleeps on c, or else the next one that does.
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
		signal(l.wakeup)
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
	Flights     int // results that are shared
}

// Census is for tests.
func (q *Waiters) Census() Census {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := Census{LocalQueues: len(q.localQueues), Flights: len(q.flights)}
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
