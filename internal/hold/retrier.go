package hold

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
// whose Unlock was not confirmed in time.
//
//   - However many releases are pending, at most maxRetryCalls calls are under way, because most releases are pending
//     when the server is down.
//   - The releases are sent in the order in which they are due. Otherwise, under overload, a release could wait until
//     its lease is over while newer releases are sent. Only an expedited release goes first, because a lock or permit
//     stays taken without a user until it has been sent.
//   - Releases that can be sent together share a call, and there is one such call at a time: a release that comes while
//     the call is under way goes with the next.
//
// A caller that gives up returns at once, and does not wait for its release. With a call for each caller that leaves, a
// crowd whose patience is shorter than the queue would leave faster than the releases are sent. Its entries would fill
// the queues on the server, stand before the entries of living waiters, and be handed the lock
// (TestRetrier_Batch_KeepsUpWithLeavers).
type Retrier struct {
	ctx    context.Context // ends at Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards the fields below.
	mu      sync.Mutex
	pending map[*Pending]struct{} // all pending releases
	owners  map[string]*Pending   // the pending releases that have an owner
	queue   lease.Heap[*Pending]  // releases that wait for their time or for a free call, the next due first
	batches map[any]*batchState   // batches with a call under way, by BatchKey
	calls   int                   // calls under way
	timer   *time.Timer           // runs sendDue when the next release is due
	idle    chan struct{}         // closed while there is no pending release
}

// Pending is one pending release: the server has not confirmed it.
type Pending struct {
	// Name is the name of the released object, as the caller gave it.
	Name string
	// Owner is the owner of the release, for Kick; "": without an owner. An owner has one pending release at most.
	Owner string
	// Release sends the release once. A nil error means that it was answered.
	Release func(ctx context.Context) error
	// BatchKey, if it is not nil, is equal for all releases that one call of ReleaseAll can send. Of is this release's
	// element of the argument. ReleaseAll is that of any of the releases.
	BatchKey   any
	Of         *Holding
	ReleaseAll func(ctx context.Context, all []*Holding) error
	// After is the earliest instant of a final attempt. A reply to an earlier attempt is not final, because an acquire
	// that was sent earlier may still run after the release has.
	After time.Time
	// Until is the instant at which the lease is over in any case. The release is not sent after it.
	Until time.Time

	// The progress. Guarded by Retrier.mu.
	step         releaseStep
	nextTryAt    time.Time
	failedTries  int           // failed attempts in a row
	earlyReplies int           // replies that were not final
	expedited    bool          // it goes before other releases, and does not wait for the call of its batch
	firstTryDone chan struct{} // closed after an attempt; made when a caller waits for the first
	heapIndex    int           // in Retrier.queue
}

// releaseStep is the step of a pending release.
//
//	queued --due--> inFlight --not final--> queued
//	   |               ^  |  sendNow
//	   | due           |  +----------> inFlightAgain --answered or not--> queued, and due
//	   v               |
//	awaitsCall --------+ with the next call of its batch
type releaseStep uint8

const (
	queued     releaseStep = iota // in Retrier.queue
	awaitsCall                    // in the waiting list of its batch
	inFlight
	inFlightAgain // an attempt is under way, and another follows it
)

// batchState are the calls under way of releases that can be sent together.
type batchState struct {
	calls   int
	waiting []*Pending // releases that wait for the end of the calls
}

// Before orders the pending releases by their next attempts, expedited releases first.
func (p *Pending) Before(other *Pending) bool {
	if p.expedited != other.expedited {
		return p.expedited
	}
	return p.nextTryAt.Before(other.nextTryAt)
}

// SetIndex records the index in Retrier.queue.
func (p *Pending) SetIndex(index int) { p.heapIndex = index }

const (
	maxRetryCalls = 32
	maxBatchSize  = 256 // releases in one call
)

// firstResendIn is the first pause after a reply that is not final. Each further pause is four times as long. So a
// grant to a caller that had left is released at the latest after three times the time that its request was under way.
const firstResendIn = 2 * time.Millisecond

// NewRetrier returns an idle retrier.
func NewRetrier() *Retrier {
	retrier := &Retrier{pending: map[*Pending]struct{}{}, owners: map[string]*Pending{}, batches: map[any]*batchState{},
		idle: make(chan struct{})}
	close(retrier.idle)
	retrier.timer = time.AfterFunc(time.Hour, func() {
		retrier.mu.Lock()
		defer retrier.mu.Unlock()
		retrier.sendDue()
	})
	retrier.ctx, retrier.cancel = context.WithCancel(context.Background())
	return retrier
}

// Add adds a pending release, and sends it at once. If the owner has a pending release already, that one is sent again
// instead, and lasts until the later of both ends. After Stop Add does nothing.
func (r *Retrier) Add(pending *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	if other := r.owners[pending.Owner]; other != nil {
		if pending.After.After(other.After) {
			other.After = pending.After
		}
		if pending.Until.After(other.Until) {
			other.Until = pending.Until
		}
		r.sendNow(other)
		return
	}
	if len(r.pending) == 0 {
		r.idle = make(chan struct{})
	}
	r.pending[pending] = struct{}{}
	if pending.Owner != "" {
		r.owners[pending.Owner] = pending
	}
	r.enqueue(pending, time.Now())
	r.sendDue()
}

// Kick sends the pending release of an owner now, if there is one, because the owner was just granted a lock or permit,
// or put into a queue. Otherwise the grant would last until the next attempt. A caller that is about to add a release
// need not call Kick, because a release that is added is sent after this.
func (r *Retrier) Kick(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending := r.owners[owner]
	if pending == nil {
		return
	}
	pending.expedited = true
	if pending.step == awaitsCall {
		batch := r.batches[pending.BatchKey]
		batch.waiting = slices.DeleteFunc(batch.waiting, func(other *Pending) bool { return other == pending })
		r.enqueue(pending, time.Now())
	}
	r.sendNow(pending)
}

// sendNow makes a pending release due, or sends it again if it is under way. Called with mu held.
func (r *Retrier) sendNow(pending *Pending) {
	switch pending.step {
	case queued:
		pending.nextTryAt = time.Now()
		heap.Fix(&r.queue, pending.heapIndex)
		r.sendDue()
	case inFlight:
		pending.step = inFlightAgain
	}
}

// Await waits for the first attempt of an owner's pending release, if there is one, for limit at most.
func (r *Retrier) Await(owner string, limit time.Duration) {
	r.mu.Lock()
	pending := r.owners[owner]
	if pending == nil || pending.failedTries > 0 || pending.earlyReplies > 0 {
		r.mu.Unlock()
		return
	}
	if pending.firstTryDone == nil {
		pending.firstTryDone = make(chan struct{})
	}
	tried := pending.firstTryDone
	r.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-tried:
	case <-timer.C:
	case <-r.ctx.Done():
	}
}

// Drain waits until no release is pending or ctx ends, and returns the names of the releases that are still pending.
func (r *Retrier) Drain(ctx context.Context) (names []string) {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	for _, pending := range r.All() {
		names = append(names, pending.Name)
	}
	slices.Sort(names)
	return names
}

// All returns all pending releases, also those under way. Callers may read Name and Until of each.
func (r *Retrier) All() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.pending))
}

// Count returns the number of pending releases, including those under way.
func (r *Retrier) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// Stop drops the pending releases and waits for the calls under way.
func (r *Retrier) Stop() {
	r.mu.Lock()
	r.cancel() // under mu, so that sendDue starts no call after this
	r.timer.Stop()
	r.mu.Unlock()
	r.wg.Wait()
}

// enqueue queues a release until that instant. Called with mu held.
func (r *Retrier) enqueue(pending *Pending, nextTryAt time.Time) {
	pending.step, pending.nextTryAt = queued, nextTryAt
	heap.Push(&r.queue, pending)
}

// remove removes a release that is over. Called with mu held.
func (r *Retrier) remove(pending *Pending) {
	delete(r.pending, pending)
	if r.owners[pending.Owner] == pending {
		delete(r.owners, pending.Owner)
	}
	if len(r.pending) == 0 {
		close(r.idle)
	}
}

// sendDue starts the calls that are due, as far as calls are free, and sets the timer for the next. Called with mu
// held, after every change of the queue and at the end of every call.
func (r *Retrier) sendDue() {
	now := time.Now()
	for len(r.queue) > 0 && r.calls < maxRetryCalls && r.ctx.Err() == nil {
		pending := r.queue[0]
		if !pending.isDue(now) {
			r.timer.Reset(pending.nextTryAt.Sub(now))
			return
		}
		heap.Pop(&r.queue)
		if !now.Before(pending.Until) {
			r.remove(pending)
		} else if batch := r.batches[pending.BatchKey]; batch != nil && !pending.expedited {
			pending.step = awaitsCall
			batch.waiting = append(batch.waiting, pending)
		} else {
			r.calls++
			together := r.beginCall(pending, now)
			r.wg.Go(func() { r.call(together) })
		}
	}
}

func (p *Pending) isDue(now time.Time) bool { return p.expedited || !p.nextTryAt.After(now) }

// beginCall returns first, with the releases of its batch that wait for a call, and those that are due next. Called
// with mu held.
func (r *Retrier) beginCall(first *Pending, now time.Time) []*Pending {
	together := []*Pending{first}
	if first.BatchKey != nil {
		batch := r.batches[first.BatchKey]
		if batch == nil {
			batch = &batchState{}
			r.batches[first.BatchKey] = batch
		}
		batch.calls++
		count := min(len(batch.waiting), maxBatchSize-1)
		together = append(together, batch.waiting[:count]...)
		batch.waiting = slices.Delete(batch.waiting, 0, count)
		for len(together) < maxBatchSize && len(r.queue) > 0 && r.queue[0].BatchKey == first.BatchKey &&
			r.queue[0].isDue(now) && now.Before(r.queue[0].Until) {
			together = append(together, heap.Pop(&r.queue).(*Pending))
		}
	}
	for _, pending := range together {
		pending.step, pending.expedited = inFlight, false
	}
	return together
}

// call makes one call for releases that are sent together, and records its result.
func (r *Retrier) call(together []*Pending) {
	sent := time.Now()
	err := send(r.ctx, together)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls--
	now := time.Now()
	for _, pending := range together {
		r.recordResult(pending, sent, now, err)
	}
	r.endCall(together[0].BatchKey)
	r.sendDue()
}

func send(ctx context.Context, together []*Pending) error {
	first := together[0]
	if first.BatchKey == nil {
		return first.Release(ctx)
	}
	all := make([]*Holding, len(together))
	for i, pending := range together {
		all[i] = pending.Of
	}
	return first.ReleaseAll(ctx, all)
}

// endCall ends a call of a batch, so that the next call may begin. Called with mu held.
func (r *Retrier) endCall(key any) {
	batch := r.batches[key]
	if batch == nil {
		return
	}
	if batch.calls--; batch.calls > 0 {
		return
	}
	delete(r.batches, key)
	for _, pending := range batch.waiting {
		r.enqueue(pending, pending.nextTryAt)
	}
}

// recordResult records the result of an attempt. Called with mu held.
func (r *Retrier) recordResult(pending *Pending, sent, now time.Time, err error) {
	if pending.firstTryDone != nil {
		close(pending.firstTryDone)
		pending.firstTryDone = nil
	}
	done := err == nil && !sent.Before(pending.After)
	var nextTryAt time.Time
	if err == nil {
		// A request without a reply mostly arrives in a moment, and surely before After.
		nextTryAt, pending.failedTries = pending.After, 0
		if resendAt := now.Add(firstResendIn << min(2*pending.earlyReplies, 30)); resendAt.Before(pending.After) {
			nextTryAt = resendAt
		}
		pending.earlyReplies++
	} else {
		pause := script.Backoff(4 + pending.failedTries)
		if !script.NotAnswered(err) {
			pause *= 4 // for example a missing right, which is not given in a moment
		}
		nextTryAt = now.Add(pause)
		pending.failedTries++
	}
	if nextTryAt.After(pending.Until) {
		nextTryAt = pending.Until
	}
	switch {
	case pending.step == inFlightAgain:
		r.enqueue(pending, now)
	case done:
		r.remove(pending)
	default:
		r.enqueue(pending, nextTryAt)
	}
}
