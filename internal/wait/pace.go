package wait

import (
	"hash/maphash"
	"time"
)

// requestPace limits how many Paced waiters of a local queue make their first request at once. Nothing else limits
// them: a caller that gives up does not wait for the server, and the next caller makes its request at once.
//
//	64 callers, patience 2 ms               server, 20,000 requests a second
//	ask, give up, ask, …: 30,000 a second --> runs every request, because it cannot know that the caller has left
//	                                        replies after 2 ms, 5 ms, 500 ms: the caller has left, nobody is served, and
//	                                        each entry that was left in the queue has to be removed, too
//
// So each waiter that gives up halves the limit, and each waiter that is served raises it by one. Callers that are
// served never reach the limit, however long they wait. The limit is never below two: a lock is handed over at most
// once in a round trip, so two requests in a round trip keep its queue filled. A waiter that gives up before its
// admission has made no request, and leaves no entry behind. A request whose caller has left counts for as long as the
// last reply took, because the server has yet to run it.
//
// The limit outlives the local queue (lastLimits), because all callers may leave at once and return a moment later.
type requestPace struct {
	limit          int           // of first requests at once
	unanswered     int           // first requests without a reply
	lastReplyTime  time.Duration // from the send of the last answered request to its reply
	admissionQueue []*Caller     // waiters before their first request, first come first
}

// lastLimits holds the limits of removed local queues by a hash of the key; 0: not known. A wrong limit, of another key
// with the same hash, costs only a few requests.
type lastLimits [64]int

var limitsSeed = maphash.MakeSeed()

func (b *lastLimits) of(key string) *int { return &b[maphash.String(limitsSeed, key)%uint64(len(b))] }

const (
	maxLimit = 128
	minLimit = 2
)

// awaitAdmission waits until the waiter may make its first request. It returns false if the waiter's time is over.
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

// recordReply records that the first request of a Paced waiter, sent at sent, was answered, or that the waiter does not
// await the reply any longer.
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

// admitNext admits waiters up to the limit. Called with Waiters.mu held.
func (p *requestPace) admitNext() {
	for p.unanswered < p.limit && len(p.admissionQueue) > 0 {
		caller := p.admissionQueue[0]
		p.admissionQueue = p.admissionQueue[1:]
		p.unanswered++
		caller.isAdmitted = true
		close(caller.admission)
	}
}

// removeWaiter removes a waiter that leaves, and adapts the limit. Called with Waiters.mu held.
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
	if caller.isAdmitted { // it was admitted, and made no request
		caller.isAdmitted = false
		p.unanswered--
	}
	p.admitNext()
}
