package session

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Retrier finishes releases in the background: of what an abandoned acquire may have taken, and of holds whose
// Unlock was not confirmed in time. It works with a few goroutines however many releases are pending, because they are
// many exactly when the server is down. They are tried in the order in which they are due: with more to do
// than can be done, none may wait until its lease is over while newer ones are served.
type Retrier struct {
	mu      sync.Mutex
	pending pendings
	workers int
	busy    map[*Pending]struct{} // being tried right now
	idle    chan struct{}         // closed while nothing is pending or under way
	sleeps  time.Time             // until when the worker sleeps that waits for the next release; zero: none does
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Pending is one release that is pending: not confirmed by the server.
type Pending struct {
	// Name is what is released, as the user knows it.
	Name string
	// Release tries once. nil: answered.
	Release func(ctx context.Context) error
	// After: an answer before this instant is not the last word, because an acquire sent earlier may yet run.
	After time.Time
	// Until is when the lease is over whatever happens: nothing needs a release any more.
	Until time.Time

	next  time.Time
	tries int
}

// pendings is a binary heap by when each is to be tried next.
type pendings []*Pending

func (h pendings) Len() int           { return len(h) }
func (h pendings) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h pendings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *pendings) Push(x any)        { *h = append(*h, x.(*Pending)) }
func (h *pendings) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

const retryWorkers = 32

// NewRetrier returns an idle retrier.
func NewRetrier() *Retrier {
	r := &Retrier{busy: map[*Pending]struct{}{}, idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	close(r.idle)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Add adds a pending release. After Stop it does nothing.
func (r *Retrier) Add(p *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	if len(r.pending) == 0 && r.workers == 0 {
		r.idle = make(chan struct{})
	}
	p.next = time.Now()
	if !r.push(p) {
		r.hire()
	}
}

// push takes p in, and reports whether it woke the worker that sleeps: until a release that is due later, which may be long,
// and nobody else may be left or free. Called with mu held.
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

// Settle waits until nothing is pending or ctx ends, and returns the names of what is still pending, each as often as it is.
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

// Stop forgets what is pending and waits for the workers.
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
		err := p.Release(r.ctx)
		now := time.Now()
		done := err == nil && !now.Before(p.After)
		if err == nil {
			p.next = p.After
		} else {
			pause := script.Backoff(4 + p.tries)
			if !script.Retryable(err) {
				pause *= 4 // a right that is missing, say: nothing that is over in a moment
			}
			p.next = now.Add(pause)
			p.tries++
		}
		if p.next.After(p.Until) {
			p.next = p.Until
		}
		r.mu.Lock()
		delete(r.busy, p)
		if !done {
			r.push(p)
		}
		r.mu.Unlock()
	}
}

// sleep waits until the next release is due, as far as is known, or it is woken for another.
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

// take returns a release that is due, or how long to wait for one, or neither when the worker should end.
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
