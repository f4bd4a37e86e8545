package session

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Retrier finishes releases in the background: of what an acquisition that gave up may have taken, and of holds whose Unlock
// was not confirmed in time. However many releases are pending, it uses at most retryWorkers goroutines, because most releases
// are pending when the server is down. They are tried in the order in which they are due. Otherwise, under overload, one could
// wait until its lease is over while newer ones are tried.
type Retrier struct {
	mu      sync.Mutex
	pending pendings
	workers int
	busy    map[*Pending]struct{} // being tried right now
	owners  map[string]*Pending   // those of an owner, pending or busy
	idle    chan struct{}         // closed while nothing is pending or under way
	sleeps  time.Time             // until when one worker sleeps for the next release; zero: none sleeps
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Pending is one pending release: the server has not confirmed it.
type Pending struct {
	// Name is the name of what is released, as the caller gave it.
	Name string
	// Owner is whose it is, for Kick; "": nobody's. Of each owner one release is pending.
	Owner string
	// Release tries once. nil: answered.
	Release func(ctx context.Context) error
	// After: the answer to a try that was sent before this instant is not final, because an acquire that was sent earlier may still
	// run, after the release has.
	After time.Time
	// Until is when the lease is over in any case. Then nothing needs a release any more.
	Until time.Time

	next    time.Time
	tries   int  // in a row that failed
	answers int  // that were not final
	again   bool // it is to be sent once more, though it is being tried
	at      int  // in pendings
}

// pendings is a binary heap, ordered by the time of the next try.
type pendings []*Pending

func (h pendings) Len() int           { return len(h) }
func (h pendings) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h pendings) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *pendings) Push(x any) {
	x.(*Pending).at = len(*h)
	*h = append(*h, x.(*Pending))
}
func (h *pendings) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

const retryWorkers = 32

// soonAgain is how often a release whose answer is not final is sent again soon: after 2, 8, 32 and 128 ms.
const soonAgain = 4

// NewRetrier returns an idle retrier.
func NewRetrier() *Retrier {
	r := &Retrier{busy: map[*Pending]struct{}{}, owners: map[string]*Pending{}, idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	close(r.idle)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Add adds a pending release, and has it tried at once. If one of that owner is pending, that goes on for as long as both would. After
// Stop it does nothing.
func (r *Retrier) Add(p *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	if other := r.owners[p.Owner]; other != nil {
		if p.After.After(other.After) {
			other.After = p.After
		}
		if p.Until.After(other.Until) {
			other.Until = p.Until
		}
		r.kick(other)
		return
	}
	if len(r.pending) == 0 && r.workers == 0 {
		r.idle = make(chan struct{})
	}
	if p.Owner != "" {
		r.owners[p.Owner] = p
	}
	r.tryNow(p)
}

// tryNow has a release tried at once. Called with mu held.
func (r *Retrier) tryNow(p *Pending) {
	p.next = time.Now()
	if !r.push(p) {
		r.hire()
	}
}

// Kick has the pending release of an owner, if there is one, sent now: the owner was just granted something, or put into a queue.
// Otherwise that would be found when the release is next tried. Whoever is about to add a release need not be kicked, because what is
// added is sent after this.
func (r *Retrier) Kick(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.owners[owner]; p != nil && r.ctx.Err() == nil {
		r.kick(p)
	}
}

// kick is called with mu held.
func (r *Retrier) kick(p *Pending) {
	if _, busy := r.busy[p]; busy {
		p.again = true
		return
	}
	heap.Remove(&r.pending, p.at)
	r.tryNow(p)
}

// forget is called with mu held, of a release that is over.
func (r *Retrier) forget(p *Pending) {
	if r.owners[p.Owner] == p {
		delete(r.owners, p.Owner)
	}
}

// push adds p, and reports whether it woke the sleeping worker. That worker sleeps until a release that is due later than p,
// which may be long, and perhaps no other worker exists or is free. Called with mu held.
func (r *Retrier) push(p *Pending) (woke bool) {
	heap.Push(&r.pending, p)
	if r.sleeps.IsZero() || !p.next.Before(r.sleeps) {
		return false
	}
	r.sleeps = time.Time{}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

// hire starts a worker, unless there are enough. Called with mu held and before Stop.
func (r *Retrier) hire() {
	if r.workers < retryWorkers {
		r.workers++
		r.wg.Add(1)
		go r.work()
	}
}

// Settle waits until nothing is pending or ctx ends. It returns the name of every release that is still pending.
func (r *Retrier) Settle(ctx context.Context) (names []string) {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		names = append(names, p.Name)
	}
	for p := range r.busy {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// All returns the releases that are pending or under way. Of each, Name and Until may be read.
func (r *Retrier) All() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(slices.Clone([]*Pending(r.pending)), maps.Keys(r.busy))
}

// Count returns how many releases are pending or under way.
func (r *Retrier) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) + len(r.busy)
}

// Stop drops the pending releases and waits for the workers.
func (r *Retrier) Stop() {
	r.mu.Lock()
	r.cancel() // under mu: Add adds no worker after this
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Retrier) work() {
	defer r.wg.Done()
	for {
		p, wait := r.take()
		if p == nil && wait == 0 {
			return
		}
		if p == nil {
			r.sleep(wait)
			continue
		}
		sent := time.Now()
		err := p.Release(r.ctx)
		now := time.Now()
		r.mu.Lock()
		delete(r.busy, p)
		done := err == nil && !sent.Before(p.After)
		if err == nil {
			// What is on its way arrives in a moment, mostly. Of what does not, the last moment is known.
			p.next, p.tries = p.After, 0
			if soon := now.Add(script.Backoff(2 * p.answers)); p.answers < soonAgain && soon.Before(p.After) {
				p.next = soon
			}
			p.answers++
		} else {
			pause := script.Backoff(4 + p.tries)
			if !script.NotAnswered(err) {
				pause *= 4 // for example a missing right, which will not be there in a moment
			}
			p.next = now.Add(pause)
			p.tries++
		}
		if p.next.After(p.Until) {
			p.next = p.Until
		}
		switch {
		case p.again:
			p.again, p.next = false, now
			r.push(p)
		case done:
			r.forget(p)
		default:
			r.push(p)
		}
		r.mu.Unlock()
	}
}

// sleep waits for d, until the next known release is due, or until push wakes it for an earlier one.
func (r *Retrier) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.wake:
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	r.sleeps = time.Time{}
	r.mu.Unlock()
}

// take returns a release that is due, or how long to wait for one. It returns neither if the worker should end.
func (r *Retrier) take() (*Pending, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.pending) > 0 && r.ctx.Err() == nil {
		p := r.pending[0]
		if p.next.After(now) {
			if r.workers > 1 { // one worker is enough to wait
				break
			}
			r.sleeps = p.next
			return nil, p.next.Sub(now)
		}
		heap.Pop(&r.pending)
		if !now.Before(p.Until) {
			r.forget(p)
			continue
		}
		r.busy[p] = struct{}{}
		if len(r.pending) > 0 && !r.pending[0].next.After(now) {
			r.hire()
		}
		return p, 0
	}
	r.workers--
	if r.workers == 0 {
		close(r.idle)
	}
	return nil, 0
}
