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
//   - However many releases are pending, it uses at most retryWorkers goroutines, because most releases are pending
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
	mu         sync.Mutex
	queue      lease.Heap[*Pending] // releases that no worker sends at the moment, the next due first
	workers    int
	inFlight   map[*Pending]struct{} // releases that a worker is sending
	owners     map[string]*Pending   // all pending releases, by owner
	batches    map[any]*batchState   // batches with a call under way, by BatchKey
	idle       chan struct{}         // closed while there is no pending release
	sleepUntil time.Time             // one worker sleeps until then; zero: no worker sleeps
	wake       chan struct{}
	ctx        context.Context
	cancel     context.CancelFunc
	wg         sync.WaitGroup
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
	nextTryAt    time.Time
	failedTries  int           // failed attempts in a row
	earlyReplies int           // replies that were not final
	sendAgain    bool          // a new attempt follows the attempt under way
	expedited    bool          // it goes before other releases, and does not wait for the call of its batch
	waitsForCall bool          // it waits for the call of its batch
	firstTryDone chan struct{} // closed after an attempt; made when a caller waits for the first
	heapIndex    int           // in Retrier.queue
}

// batchState are the calls under way of releases that can be sent together.
type batchState struct {
	callsInFlight int
	waiting       []*Pending // releases that wait for the calls
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
	retryWorkers = 32
	maxBatchSize = 256 // releases in one call
)

// firstResendIn is the first pause after a reply that is not final. Each further pause is four times as long. So a
// grant to a caller that had left is released at the latest after three times the time that its request was under way.
const firstResendIn = 2 * time.Millisecond

// NewRetrier returns an idle retrier.
func NewRetrier() *Retrier {
	retrier := &Retrier{inFlight: map[*Pending]struct{}{}, owners: map[string]*Pending{}, batches: map[any]*batchState{},
		idle: make(chan struct{}), wake: make(chan struct{}, 1)}
	close(retrier.idle)
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
	if len(r.queue) == 0 && r.workers == 0 {
		r.idle = make(chan struct{})
	}
	if pending.Owner != "" {
		r.owners[pending.Owner] = pending
	}
	r.scheduleNow(pending)
}

// scheduleNow makes a release due at once, or adds it to the next call of its batch. Called with mu held.
func (r *Retrier) scheduleNow(pending *Pending) {
	pending.nextTryAt = time.Now()
	if r.waitForCall(pending) {
		return
	}
	if !r.enqueue(pending) {
		r.startWorker()
	}
}

// Kick sends the pending release of an owner now, if there is one, because the owner was just granted a lock or permit,
// or put into a queue. Otherwise the grant would last until the next attempt. A caller that is about to add a release
// need not call Kick, because a release that is added is sent after this.
func (r *Retrier) Kick(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pending := r.owners[owner]; pending != nil && r.ctx.Err() == nil {
		r.expedite(pending)
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

// expedite sends a pending release now, before others. Called with mu held.
func (r *Retrier) expedite(pending *Pending) {
	pending.expedited = true
	if pending.waitsForCall {
		batch := r.batches[pending.BatchKey]
		batch.waiting = slices.DeleteFunc(batch.waiting, func(other *Pending) bool { return other == pending })
		pending.waitsForCall = false
		r.scheduleNow(pending)
		return
	}
	r.sendNow(pending)
}

// sendNow sends a pending release now, or again if it is under way. Called with mu held.
func (r *Retrier) sendNow(pending *Pending) {
	if _, busy := r.inFlight[pending]; busy {
		pending.sendAgain = true
	} else if !pending.waitsForCall {
		heap.Remove(&r.queue, pending.heapIndex)
		r.scheduleNow(pending)
	}
}

// waitForCall makes a release wait for the call of its batch that is under way, and reports false if there is none.
// Called with mu held.
func (r *Retrier) waitForCall(pending *Pending) bool {
	if pending.BatchKey == nil || pending.expedited {
		return false
	}
	batch := r.batches[pending.BatchKey]
	if batch == nil {
		return false
	}
	pending.waitsForCall = true
	batch.waiting = append(batch.waiting, pending)
	return true
}

// removeOwner removes a release that is over from owners. Called with mu held.
func (r *Retrier) removeOwner(pending *Pending) {
	if r.owners[pending.Owner] == pending {
		delete(r.owners, pending.Owner)
	}
}

// enqueue adds a release to the queue, and reports whether it woke the sleeping worker. That worker sleeps until the
// next release is due, which may be much later than the added release is, and all other workers may be busy. Called
// with mu held.
func (r *Retrier) enqueue(pending *Pending) (woke bool) {
	heap.Push(&r.queue, pending)
	if r.sleepUntil.IsZero() || !pending.nextTryAt.Before(r.sleepUntil) {
		return false
	}
	r.sleepUntil = time.Time{}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

// startWorker starts a worker, unless there are enough. Called with mu held and before Stop.
func (r *Retrier) startWorker() {
	if r.workers < retryWorkers {
		r.workers++
		r.wg.Add(1)
		go r.work()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pending := range r.queue {
		names = append(names, pending.Name)
	}
	for pending := range r.inFlight {
		names = append(names, pending.Name)
	}
	for _, batch := range r.batches {
		for _, pending := range batch.waiting {
			names = append(names, pending.Name)
		}
	}
	slices.Sort(names)
	return names
}

// All returns all pending releases, also those under way. Callers may read Name and Until of each.
func (r *Retrier) All() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.AppendSeq(slices.Clone([]*Pending(r.queue)), maps.Keys(r.inFlight))
	for _, batch := range r.batches {
		all = append(all, batch.waiting...)
	}
	return all
}

// Count returns the number of pending releases, including those under way.
func (r *Retrier) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := len(r.queue) + len(r.inFlight)
	for _, batch := range r.batches {
		count += len(batch.waiting)
	}
	return count
}

// Stop drops the pending releases and waits for the workers.
func (r *Retrier) Stop() {
	r.mu.Lock()
	r.cancel() // under mu, so that Add starts no worker after this
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Retrier) work() {
	defer r.wg.Done()
	for {
		batch, wait := r.takeDue()
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
		r.finishCall(batch[0].BatchKey)
		for _, pending := range batch {
			r.recordResult(pending, sent, now, err)
		}
		r.mu.Unlock()
	}
}

func (r *Retrier) send(batch []*Pending) error {
	if batch[0].BatchKey == nil {
		return batch[0].Release(r.ctx)
	}
	all := make([]*Holding, len(batch))
	for i, pending := range batch {
		all[i] = pending.Of
	}
	return batch[0].ReleaseAll(r.ctx, all)
}

// recordResult records the result of an attempt. Called with mu held.
func (r *Retrier) recordResult(pending *Pending, sent, now time.Time, err error) {
	delete(r.inFlight, pending)
	if pending.firstTryDone != nil {
		close(pending.firstTryDone)
		pending.firstTryDone = nil
	}
	done := err == nil && !sent.Before(pending.After)
	if err == nil {
		// A request without a reply mostly arrives in a moment, and surely before After.
		pending.nextTryAt, pending.failedTries = pending.After, 0
		if resendAt := now.Add(firstResendIn << min(2*pending.earlyReplies, 30)); resendAt.Before(pending.After) {
			pending.nextTryAt = resendAt
		}
		pending.earlyReplies++
	} else {
		pause := script.Backoff(4 + pending.failedTries)
		if !script.NotAnswered(err) {
			pause *= 4 // for example a missing right, which is not given in a moment
		}
		pending.nextTryAt = now.Add(pause)
		pending.failedTries++
	}
	if pending.nextTryAt.After(pending.Until) {
		pending.nextTryAt = pending.Until
	}
	switch {
	case pending.sendAgain:
		pending.sendAgain, pending.nextTryAt = false, now
		r.enqueue(pending)
	case done:
		r.removeOwner(pending)
	default:
		r.enqueue(pending)
	}
}

// finishCall ends a call of a batch, so that the next call may begin. Called with mu held.
func (r *Retrier) finishCall(key any) {
	if key == nil {
		return
	}
	batch := r.batches[key]
	if batch.callsInFlight--; batch.callsInFlight > 0 {
		return
	}
	delete(r.batches, key)
	for _, pending := range batch.waiting {
		pending.waitsForCall = false
		r.enqueue(pending)
	}
}

// sleep waits for the given time, until the next known release is due, or until enqueue wakes it for an earlier
// release.
func (r *Retrier) sleep(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake:
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	r.sleepUntil = time.Time{}
	r.mu.Unlock()
}

// takeDue returns a release that is due, with others of its batch. If no release is due, it returns how long to wait
// for one. It returns neither if the worker has to end.
func (r *Retrier) takeDue() ([]*Pending, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.queue) > 0 && r.ctx.Err() == nil {
		pending := r.queue[0]
		if !pending.isDue(now) {
			if r.workers > 1 { // one worker is enough to wait
				break
			}
			r.sleepUntil = pending.nextTryAt
			return nil, pending.nextTryAt.Sub(now)
		}
		heap.Pop(&r.queue)
		if !now.Before(pending.Until) {
			r.removeOwner(pending)
			continue
		}
		if r.waitForCall(pending) {
			continue
		}
		batch := r.collectBatch(pending, now)
		for _, pending := range batch {
			pending.expedited = false
			r.inFlight[pending] = struct{}{}
		}
		if len(r.queue) > 0 && r.queue[0].isDue(now) {
			r.startWorker()
		}
		return batch, 0
	}
	r.workers--
	if r.workers == 0 {
		close(r.idle)
	}
	return nil, 0
}

func (p *Pending) isDue(now time.Time) bool { return p.expedited || !p.nextTryAt.After(now) }

// collectBatch begins a call for first, and for the releases of its batch that wait for a call or are due. Called with
// mu held.
func (r *Retrier) collectBatch(first *Pending, now time.Time) []*Pending {
	collected := []*Pending{first}
	if first.BatchKey == nil {
		return collected
	}
	batch := r.batches[first.BatchKey]
	if batch == nil {
		batch = &batchState{}
		r.batches[first.BatchKey] = batch
	}
	batch.callsInFlight++
	count := min(len(batch.waiting), maxBatchSize-1)
	for _, other := range batch.waiting[:count] {
		other.waitsForCall = false
		collected = append(collected, other)
	}
	batch.waiting = slices.Delete(batch.waiting, 0, count)
	var others []*Pending
	for checked := 0; checked < maxBatchSize && len(collected) < maxBatchSize && len(r.queue) > 0 &&
		r.queue[0].isDue(now); checked++ {
		other := heap.Pop(&r.queue).(*Pending)
		switch {
		case other.BatchKey != first.BatchKey:
			others = append(others, other)
		case !now.Before(other.Until):
			r.removeOwner(other)
		default:
			collected = append(collected, other)
		}
	}
	for _, other := range others {
		heap.Push(&r.queue, other)
	}
	return collected
}
