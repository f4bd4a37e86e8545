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
//	ask, give up, ask, …: 30,000 a second ----> runs each, also those whose callers have left: it cannot know
//	                                        answers after 2 ms, 5 ms, 500 ms: no one is there to hear of it, no one is served, and
//	                                        what each leaves in the queue has to be taken out, too
//
// So each waiter that gives up halves the number, and each that is served raises it by one. Callers that are served,
// however long they wait, never meet the bound. It is never below two: a lock is handed over once in a round trip at
// most, so two questions in each round trip keep its queue filled. A waiter that gives up before its turn has asked
// nothing, and leaves nothing behind. A question whose caller has left counts for as long as answers took of late: the
// server has yet to run it.
//
// The number outlives the local queue (lastBounds): all callers may leave at once, and be back a moment later.
type pace struct {
	bound  int           // asking at once
	asking int           // for the first time
	trip   time.Duration // how long an answer took, the last that came
	turns  []*Caller     // that wait for their turn, first come first
}

// lastBounds are the bounds of the local queues that have ended, by a hash of the key; 0: not known. Keys come and go,
// and a wrong bound costs a few requests only.
type lastBounds [64]int

var boundsSeed = maphash.MakeSeed()

func (b *lastBounds) of(key string) *int { return &b[maphash.String(boundsSeed, key)%uint64(len(b))] }

const (
	mostPaced  = 128
	leastPaced = 2
)

// pace awaits the waiter's turn to ask; false: out of patience.
func (w *Caller) pace() bool {
	q, l := w.q, w.localQueue
	q.mu.Lock()
	if l.pace == nil {
		l.pace = &pace{bound: mostPaced}
		if b := *q.bounds.of(w.r.QueueKey); b > 0 {
			l.pace.bound = b
		}
	}
	p := l.pace
	if p.asking < p.bound && len(p.turns) == 0 {
		p.asking++
		w.asks = true
		q.mu.Unlock()
		return true
	}
	w.turn = make(chan struct{})
	p.turns = append(p.turns, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-w.waitContext().Done():
		return false
	}
}

// paced says that the waiter's question, which was sent at sent, was answered, or that it does not wait for the answer
// any more.
func (w *Caller) paced(sent time.Time, answered bool) {
	if w.r.Mode != Paced {
		return
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	if !w.asks {
		return
	}
	w.asks = false
	p, took := w.localQueue.pace, time.Since(sent)
	if answered {
		p.trip = took
	} else if rest := p.trip - took; rest > 0 {
		q := w.q
		time.AfterFunc(rest, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			p.asking--
			p.next()
		})
		return
	}
	p.asking--
	p.next()
}

// next lets those ask whose turn it is. Called with Waiters.mu held.
func (p *pace) next() {
	for p.asking < p.bound && len(p.turns) > 0 {
		w := p.turns[0]
		p.turns = p.turns[1:]
		p.asking++
		w.asks = true
		close(w.turn)
	}
}

// leaves is called when a waiter leaves, and whether it was served. Called with Waiters.mu held.
func (p *pace) leaves(w *Caller) {
	for i, other := range p.turns {
		if other == w {
			p.turns = append(p.turns[:i], p.turns[i+1:]...)
			break
		}
	}
	if w.granted {
		p.bound = min(p.bound+1, mostPaced)
	} else {
		p.bound = max(p.bound/2, leastPaced)
	}
	if w.asks { // it heard that it is its turn, and did not ask
		w.asks = false
		p.asking--
	}
	p.next()
}
