package lease

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Sweeper finishes releases in the background: of what an abandoned acquire may have taken, and of holds whose
// Unlock was not confirmed in time. It works with a few goroutines however many releases are owed, because they are
// owed in numbers exactly when the server is down. They are tried in the order in which they are due: with more to do
// than can be done, none may wait until its lease is over while newer ones are served.
type Sweeper struct {
	mu      sync.Mutex
	owed    debts
	workers int
	busy    map[*Debt]struct{} // being tried right now
	idle    chan struct{}      // closed while nothing is owed or under way
	sleeps  time.Time          // until when the worker sleeps that waits for the next debt; zero: none does
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Debt is one release that is owed.
type Debt struct {
	// Name is what is released, as the user knows it.
	Name string
	// Release tries once. nil: answered.
	Release func(ctx context.Context) error
	// After: an answer before this instant is not the last word, because an acquire sent earlier may yet run.
	After time.Time
	// Until is when the lease is over whatever happens: nothing is owed any more.
	Until time.Time

	next  time.Time
	tries int
}

// debts is a binary heap by when each is to be tried next.
type debts []*Debt

func (h debts) Len() int           { return len(h) }
func (h debts) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h debts) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *debts) Push(x any)        { *h = append(*h, x.(*Debt)) }
func (h *debts) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return d
}

const sweepWorkers = 32

// NewSweeper returns an idle sweeper.
func NewSweeper() *Sweeper {
	s := &Sweeper{busy: map[*Debt]struct{}{}, idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	close(s.idle)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Owe adds a debt. After Stop it does nothing.
func (s *Sweeper) Owe(d *Debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	if len(s.owed) == 0 && s.workers == 0 {
		s.idle = make(chan struct{})
	}
	d.next = time.Now()
	if !s.push(d) {
		s.hire()
	}
}

// push takes d in, and reports whether it woke the worker that sleeps: until a debt that is due later, which may be long,
// and nobody else may be left or free. Called with mu held.
func (s *Sweeper) push(d *Debt) (woke bool) {
	heap.Push(&s.owed, d)
	if s.sleeps.IsZero() || !d.next.Before(s.sleeps) {
		return false
	}
	s.sleeps = time.Time{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// hire starts a worker, unless there are enough. Called with mu held and before Stop.
func (s *Sweeper) hire() {
	if s.workers < sweepWorkers {
		s.workers++
		s.wg.Add(1)
		go s.work()
	}
}

// Settle waits until nothing is owed or ctx ends, and returns the names of what is still owed, each as often as it is.
func (s *Sweeper) Settle(ctx context.Context) (names []string) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.owed {
		names = append(names, d.Name)
	}
	for d := range s.busy {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// Stop forgets what is owed and waits for the workers.
func (s *Sweeper) Stop() {
	s.mu.Lock()
	s.cancel() // under mu: Owe adds no worker after this
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Sweeper) work() {
	defer s.wg.Done()
	for {
		d, wait := s.take()
		if d == nil && wait == 0 {
			return
		}
		if d == nil {
			s.sleep(wait)
			continue
		}
		err := d.Release(s.ctx)
		now := time.Now()
		done := err == nil && !now.Before(d.After)
		if err == nil {
			d.next = d.After
		} else {
			pause := script.Backoff(4 + d.tries)
			if !script.Retryable(err) {
				pause *= 4 // a right that is missing, say: nothing that is over in a moment
			}
			d.next = now.Add(pause)
			d.tries++
		}
		if d.next.After(d.Until) {
			d.next = d.Until
		}
		s.mu.Lock()
		delete(s.busy, d)
		if !done {
			s.push(d)
		}
		s.mu.Unlock()
	}
}

// sleep waits until the next debt is due, as far as is known, or it is woken for another.
func (s *Sweeper) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.wake:
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	s.sleeps = time.Time{}
	s.mu.Unlock()
}

// take returns a debt that is due, or how long to wait for one, or neither when the worker should end.
func (s *Sweeper) take() (*Debt, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.owed) > 0 && s.ctx.Err() == nil {
		d := s.owed[0]
		if d.next.After(now) {
			if s.workers > 1 { // one worker is enough to wait
				break
			}
			s.sleeps = d.next
			return nil, d.next.Sub(now)
		}
		heap.Pop(&s.owed)
		if !now.Before(d.Until) {
			continue
		}
		s.busy[d] = struct{}{}
		if len(s.owed) > 0 && !s.owed[0].next.After(now) {
			s.hire()
		}
		return d, 0
	}
	s.workers--
	if s.workers == 0 {
		close(s.idle)
	}
	return nil, 0
}
