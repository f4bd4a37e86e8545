package wait

import (
	"hash/maphash"
	"time"
)

// pace bounds how many waiters of a local queue ask for the first time at once, where each has a place of its own in
// the server's queue (Paced). Nothing else does: a caller that gives up does not wait for the server, and the next
// caller asks at once.
//
//	64 callers, patience 2 ms               server, 20,000 requests a second
//	ask, give up, ask, …: 30,000 a second --> runs every request, because it cannot know that the caller has left
//	                                        replies after 2 ms, 5 ms, 500 ms: the caller has left, nobody is served, and
//	                                        each entry that was left in the queue has to be removed, too
//
// So each waiter that gives up halves the number, and each that is served raises it by one. Callers that are served,
// however long they wait, never meet the bound. It is never below two: a lock is handed over once in a round trip at
// most, so two questions in each round trip keep its queue filled. A waiter that gives up before its turn has asked
// nothing, and leaves nothing behind. A question whose caller has left counts for as long as answers took of late: the
// server has yet to run it.
//
// The number outlives the local queue (lastBounds): all callers may leave at once, and be back a moment later.
type requestPace struct {
	limit          int           // asking at once
	unanswered     int           // for the first time
	lastReplyTime  time.Duration // how long an answer took, the last that came
	admissionQueue []*Caller     // that wait for their turn, first come first
}

// lastBounds are the bounds of the local queues that have ended, by a hash of the key; 0: not known. Keys come and go,
// and a wrong bound costs a few requests only.
type lastLimits [64]int

var limitsSeed = maphash.MakeSeed()

func (b *lastLimits) of(key string) *int { return &b[maphash.String(limitsSeed, key)%uint64(len(b))] }

const (
	maxLimit = 128
	minLimit = 2
)

// pace awaits the waiter's turn to ask; false: out of patience.
func (w *Caller) awaitAdmission() bool {
	waiters, queue := w.waiters, w.localQueue
	waiters.mu.Lock()
	if queue.pace == nil {
		queue.pace = &requestPace{limit: maxLimit}
		if limit := *waiters.paceLimits.of(w.request.QueueKey); limit > 0 {
			queue.pace.limit = limit
		}
	}
	pace := queue.pace
	if pace.unanswered < pace.limit && len(pace.admissionQueue) == 0 {
		pace.unanswered++
		w.isAdmitted = true
		waiters.mu.Unlock()
		return true
	}
	w.admission = make(chan struct{})
	pace.admissionQueue = append(pace.admissionQueue, w)
	waiters.mu.Unlock()
	select {
	case <-w.admission:
		return true
	case <-w.waitContext().Done():
		return false
	}
}

// paced says that the waiter's question, which was sent at sent, was answered, or that it does not wait for the answer
// any more.
func (w *Caller) recordReply(sent time.Time, answered bool) {
	if w.request.Mode != Paced {
		return
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	if !w.isAdmitted {
		return
	}
	w.isAdmitted = false
	pace, took := w.localQueue.pace, time.Since(sent)
	if answered {
		pace.lastReplyTime = took
	} else if rest := pace.lastReplyTime - took; rest > 0 {
		waiters := w.waiters
		time.AfterFunc(rest, func() {
			waiters.mu.Lock()
			defer waiters.mu.Unlock()
			pace.unanswered--
			pace.admitNext()
		})
		return
	}
	pace.unanswered--
	pace.admitNext()
}

// next lets those ask whose turn it is. Called with Waiters.mu held.
func (p *requestPace) admitNext() {
	for p.unanswered < p.limit && len(p.admissionQueue) > 0 {
		caller := p.admissionQueue[0]
		p.admissionQueue = p.admissionQueue[1:]
		p.unanswered++
		caller.isAdmitted = true
		close(caller.admission)
	}
}

// leaves is called when a waiter leaves, and whether it was served. Called with Waiters.mu held.
func (p *requestPace) removeWaiter(caller *Caller) {
	for i, other := range p.admissionQueue {
		if other == caller {
			p.admissionQueue = append(p.admissionQueue[:i], p.admissionQueue[i+1:]...)
			break
		}
	}
	if caller.granted {
		p.limit = min(p.limit+1, maxLimit)
	} else {
		p.limit = max(p.limit/2, minLimit)
	}
	if caller.isAdmitted { // it heard that it is its turn, and did not ask
		caller.isAdmitted = false
		p.unanswered--
	}
	p.admitNext()
}
