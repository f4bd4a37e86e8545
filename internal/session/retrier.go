package session

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Retrier finishes releases in the background: of requests of unknown outcome whose acquisition gave up, and of holds
// whose Unlock was not confirmed in time. However many releases are pending, it uses at most retryWorkers goroutines,
// because most releases are pending when the server is down. The releases are tried in the order in which they are due.
// Otherwise, under overload, a release could wait until its lease is over while newer ones are tried. Only a kicked
// release goes before all others, because something stays taken without an owner until it has been sent.
//
// Releases that can be made together are made by one call at a time: a release that comes while the call is under way
// goes with the next. A caller that gives up returns at once, and does not wait for its release. With a call for each
// caller that leaves, a crowd whose patience is shorter than the queue leaves faster than the releases are made. Its
// entries fill the queues on the server, stand before the living waiters, and are handed the lock
// (TestRetrier_Batch_KeepsUpWithLeavers).
type Retrier struct {
	mu      sync.Mutex
	pending lease.Heap[*Pending]
	workers int
	busy    map[*Pending]struct{} // being tried right now
	owners  map[string]*Pending   // pending or busy, by owner
	calls   map[any]*together     // under way, of releases that can be made together
	idle    chan struct{}         // closed while nothing is pending or under way
	sleeps  time.Time             // until when one worker sleeps for the next release; zero: none sleeps
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Pending is one pending release: the server has not confirmed it.
type Pending struct {
	// Name is the name of the released object, as the caller gave it.
	Name string
	// Owner is the owner of the release, for Kick; "": it has no owner. An owner has one pending release at most.
	Owner string
	// Release tries once. nil: answered.
	Release func(ctx context.Context) error
	// BatchKey, if it is not nil, is equal for all releases that one call of ReleaseAll can make, of whichever release. Of
	// is this release's part of the argument.
	BatchKey   any
	Of         *Holding
	ReleaseAll func(ctx context.Context, all []*Holding) error
	// After: the answer to a try that was sent before this instant is not final, because an acquire that was sent earlier
	// may still run, after the release has.
	After time.Time
	// Until is when the lease is over in any case. Then nothing needs a release any more.
	Until time.Time

	trying
}

// trying is how far a pending release has come. Guarded by Retrier.mu.
type trying struct {
	next    time.Time
	tries   int           // failed tries in a row
	answers int           // answers that were not final
	again   bool          // a new try follows the try under way
	kicked  bool          // it goes before others, and does not wait for the call of its batch
	parked  bool          // waiting for the call of its batch
	tried   chan struct{} // closed after a try; made when a caller waits for the first
	index   int           // in Retrier.pending
}

// together is the calls under way of releases that can be made together.
type together struct {
	calls  int
	parked []*Pending // waiting for the calls
}

// Before orders the pending releases by their next tries, those that were kicked first.
func (p *Pending) Before(other *Pending) bool {
	if p.kicked != other.kicked {
		return p.kicked
	}
	return p.next.Before(other.next)
}

// SetIndex notes the place among the pending releases.
func (p *Pending) SetIndex(index int) { p.index = index }

const (
	retryWorkers = 32
	mostTogether = 256 // releases that are made together
)

// soonAgain is when a release whose answer is not final is sent again first. Each pause is four times as long as the
// one before, so what was granted to a caller that had left is given back when it has been there for three times as
// long as its request was under way at most.
const soonAgain = 2 * time.Millisecond

// NewRetrier returns an idle retrier.
func NewRetrier() *Retrier {
	r := &Retrier{busy: map[*Pending]struct{}{}, owners: map[string]*Pending{}, calls: map[any]*together{},
		idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	close(r.idle)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Add adds a pending release, and has it tried at once. If one of that owner is pending, that goes on for as long as
// both would. After Stop it does nothing.
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
		r.hasten(other)
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

// tryNow has a release tried at once, or with the next call of its batch. Called with mu held.
func (r *Retrier) tryNow(p *Pending) {
	p.next = time.Now()
	if r.park(p) {
		return
	}
	if !r.push(p) {
		r.hire()
	}
}

// Kick has the pending release of an owner, if there is one, sent now, because the owner was just granted something, or
// put into a queue. Otherwise that would be found when the release is next tried. A caller that is about to add a
// release does not kick, because a release that is added is sent after this.
func (r *Retrier) Kick(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.owners[owner]; p != nil && r.ctx.Err() == nil {
		r.expedite(p)
	}
}

// Await waits until the pending release of an owner, if there is one, has been tried for the first time, for d at most.
func (r *Retrier) Await(owner string, d time.Duration) {
	r.mu.Lock()
	p := r.owners[owner]
	if p == nil || p.tries > 0 || p.answers > 0 {
		r.mu.Unlock()
		return
	}
	if p.tried == nil {
		p.tried = make(chan struct{})
	}
	tried := p.tried
	r.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-tried:
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// expedite is called with mu held.
func (r *Retrier) expedite(p *Pending) {
	p.kicked = true
	if p.parked {
		calls := r.calls[p.BatchKey]
		calls.parked = slices.DeleteFunc(calls.parked, func(other *Pending) bool { return other == p })
		p.parked = false
		r.tryNow(p)
		return
	}
	r.hasten(p)
}

// hasten has a pending release sent now. Called with mu held.
func (r *Retrier) hasten(p *Pending) {
	if _, busy := r.busy[p]; busy {
		p.again = true
	} else if !p.parked {
		heap.Remove(&r.pending, p.index)
		r.tryNow(p)
	}
}

// park has a release wait for the call of its batch that is under way, and reports false if there is none. Called with
// mu held.
func (r *Retrier) park(p *Pending) bool {
	if p.BatchKey == nil || p.kicked {
		return false
	}
	calls := r.calls[p.BatchKey]
	if calls == nil {
		return false
	}
	p.parked = true
	calls.parked = append(calls.parked, p)
	return true
}

// forget is called with mu held, of a release that is over.
func (r *Retrier) forget(p *Pending) {
	if r.owners[p.Owner] == p {
		delete(r.owners, p.Owner)
	}
}

// push adds p, and reports whether it woke the sleeping worker. A worker sleeps until the next release is due, which
// may be much later than p, and there may be no other worker that is free. Called with mu held.
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

// Drain waits until nothing is pending or ctx ends, and returns the names of the releases that are still pending.
func (r *Retrier) Drain(ctx context.Context) (names []string) {
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
	for _, calls := range r.calls {
		for _, p := range calls.parked {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// All returns the releases that are pending or under way. Of each, Name and Until may be read.
func (r *Retrier) All() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.AppendSeq(slices.Clone([]*Pending(r.pending)), maps.Keys(r.busy))
	for _, calls := range r.calls {
		all = append(all, calls.parked...)
	}
	return all
}

// Count returns how many releases are pending or under way.
func (r *Retrier) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.pending) + len(r.busy)
	for _, calls := range r.calls {
		n += len(calls.parked)
	}
	return n
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
		batch, wait := r.take()
		if batch == nil && wait == 0 {
			return
		}
		if batch == nil {
			r.sleep(wait)
			continue
		}
		sent := time.Now()
		err := r.send(batch)
		now := time.Now()
		r.mu.Lock()
		r.unpark(batch[0].BatchKey)
		for _, p := range batch {
			r.finishTry(p, sent, now, err)
		}
		r.mu.Unlock()
	}
}

func (r *Retrier) send(batch []*Pending) error {
	if batch[0].BatchKey == nil {
		return batch[0].Release(r.ctx)
	}
	all := make([]*Holding, len(batch))
	for i, p := range batch {
		all[i] = p.Of
	}
	return batch[0].ReleaseAll(r.ctx, all)
}

// finishTry records the result of a try. Called with mu held.
func (r *Retrier) finishTry(p *Pending, sent, now time.Time, err error) {
	delete(r.busy, p)
	if p.tried != nil {
		close(p.tried)
		p.tried = nil
	}
	done := err == nil && !sent.Before(p.After)
	if err == nil {
		// A request that is on its way mostly arrives in a moment, and surely before p.After.
		p.next, p.tries = p.After, 0
		if soon := now.Add(soonAgain << min(2*p.answers, 30)); soon.Before(p.After) {
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
}

// unpark ends a call of a batch, so that the next call may begin. Called with mu held.
func (r *Retrier) unpark(key any) {
	if key == nil {
		return
	}
	calls := r.calls[key]
	if calls.calls--; calls.calls > 0 {
		return
	}
	delete(r.calls, key)
	for _, p := range calls.parked {
		p.parked = false
		r.push(p)
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

// take returns a release that is due, with others of its batch, or how long to wait for one; or neither if the worker
// should end.
func (r *Retrier) take() ([]*Pending, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.pending) > 0 && r.ctx.Err() == nil {
		p := r.pending[0]
		if !p.due(now) {
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
		if r.park(p) {
			continue
		}
		batch := r.with(p, now)
		for _, p := range batch {
			p.kicked = false
			r.busy[p] = struct{}{}
		}
		if len(r.pending) > 0 && r.pending[0].due(now) {
			r.hire()
		}
		return batch, 0
	}
	r.workers--
	if r.workers == 0 {
		close(r.idle)
	}
	return nil, 0
}

func (p *Pending) due(now time.Time) bool { return p.kicked || !p.next.After(now) }

// with begins a call for p and the others of its batch: the parked ones, and those that are due. Called with mu held.
func (r *Retrier) with(p *Pending, now time.Time) []*Pending {
	batch := []*Pending{p}
	if p.BatchKey == nil {
		return batch
	}
	calls := r.calls[p.BatchKey]
	if calls == nil {
		calls = &together{}
		r.calls[p.BatchKey] = calls
	}
	calls.calls++
	n := min(len(calls.parked), mostTogether-1)
	for _, other := range calls.parked[:n] {
		other.parked = false
		batch = append(batch, other)
	}
	calls.parked = slices.Delete(calls.parked, 0, n)
	var others []*Pending
	for looked := 0; looked < mostTogether && len(batch) < mostTogether && len(r.pending) > 0 &&
		r.pending[0].due(now); looked++ {
		other := heap.Pop(&r.pending).(*Pending)
		switch {
		case other.BatchKey != p.BatchKey:
			others = append(others, other)
		case !now.Before(other.Until):
			r.forget(other)
		default:
			batch = append(batch, other)
		}
	}
	for _, other := range others {
		heap.Push(&r.pending, other)
	}
	return batch
}
