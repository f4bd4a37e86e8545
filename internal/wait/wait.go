package wait

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
)

// Waiters holds the waiting calls of one client. It is safe for concurrent use.
type Waiters struct {
	hub          *pubsub.Hub
	hubInternals accessor.Hub[*pubsub.Subscription] // of hub
	pollCap      time.Duration

	// The observer's callbacks.
	onWakeup func(ctx context.Context, name string, byMessage bool)
	onWait   func(ctx context.Context, name string)

	// Unclaimed, if set, is called with the owner of a grant or of an entry in the server's queue that has no waiter. The
	// waiter has left, and the callee releases the owner at once; or the waiter was granted, and holds the lock. The field
	// is set before the first wait. The callback must not block, nor call the Waiters.
	Unclaimed func(owner string)
	// Silence, if set, records replies and requests without a reply. It is set before the first wait.
	Silence *Silence

	ctx    context.Context // ends with the client or the hub, with cause errs.ErrClosed
	cancel context.CancelCauseFunc

	mu          sync.Mutex
	calls       List[*listedCall]      // the waiting calls, by arrival
	localQueues map[string]*localQueue // by key; see localQueue.next
	handOvers   int64                  // waits that a grant has ended

	byOwner map[string]*Caller // by owner: the callers that a release may grant
	grants  grantChannels

	// Queues and callers for reuse, because most waits need them for a moment only. Guarded by mu.
	freeQueues  []*localQueue
	freeCallers []*Caller
}

// maxSpares bounds the number of free queues, and of free callers.
const maxSpares = 128

// NewWaiters returns an empty Waiters. onWakeup is called at every wake-up of a sleeping waiter. onWait is called once
// for each request that has to wait for others. Both may be nil.
func NewWaiters(hub *pubsub.Hub, pollCap time.Duration, onWakeup func(ctx context.Context, name string, byMessage bool),
	onWait func(ctx context.Context, name string)) *Waiters {
	internals := accessor.Of[accessor.Hub[*pubsub.Subscription]](hub)
	waiters := &Waiters{hub: hub, hubInternals: internals, pollCap: pollCap, onWakeup: onWakeup, onWait: onWait,
		localQueues: map[string]*localQueue{}, byOwner: map[string]*Caller{}, grants: grantChannels{
			subs: map[string]*grantSubscription{}, pending: map[string]*pendingSubscribe{}, deniedUntil: map[string]time.Time{}}}
	if waiters.onWakeup == nil {
		waiters.onWakeup = func(context.Context, string, bool) {}
	}
	if waiters.onWait == nil {
		waiters.onWait = func(context.Context, string) {}
	}
	waiters.ctx, waiters.cancel = context.WithCancelCause(internals.Context())
	return waiters
}

// Close ends all waiting with errs.ErrClosed.
func (q *Waiters) Close() { q.cancel(errs.ErrClosed) }

// Request describes a wait.
type Request struct {
	Name string // for the observer
	// Object is the lock, permit or latch, and Began is when the call began. Both are for Waits.
	Object any
	Began  time.Time

	QueueKey   string // waiters of the same QueueKey and QueueClass stand in one local queue; empty: Name
	QueueClass string // the kind of the lock, or the number of permits
	// Flow is the tenant of the call, with a Requester; empty: none. Waiters of one local queue with different flows are
	// not behind each other: the calls for the local queue have waiters of every flow (flows.go).
	Flow    string
	Channel string // on which releases are published
	Mode    QueueMode
	// MultiServer: Try sends requests to several servers, not only to the server of QueueKey.
	MultiServer bool
	// Reported: an earlier request of the same call has reported that the call waits.
	Reported bool
	// Watcher, if set, is notified when the call begins to wait for others.
	Watcher Watcher
	// Until bounds the wait; zero: only ctx does. If Until passes during the first request, the wait ends after it.
	Until time.Time
	// Try makes one request. ctx ends with the caller's patience, but Until does not end the first request.
	Try func(ctx context.Context) (Answer, error)
	// OnMessage, if set, is called with each message of Channel that the contender receives. It reports whether the
	// message ends the wait without another call of Try.
	OnMessage func(payload string) bool
	// Taker, if set, makes the requests in place of Try. It takes part in the hand-over, but not with Alone. Either all
	// waiters of a local queue have a Requester, or none has.
	Taker Taker
	// MaxRunTime, with a Requester, is how long after its send a call of RequestAll may still run on the server.
	MaxRunTime time.Duration
	// FreeBy is when the hold of this process ends for which the caller waits; zero: the process has no such hold.
	FreeBy time.Time
	// Grants is the channel of the grants for this process.
	Grants string
	// Backoff, if set, returns how long to sleep after the n-th request in a row, from 0. The waiter polls, without any
	// subscription.
	Backoff func(n int) time.Duration
}

// Watcher is notified of the wait of a call.
type Watcher interface {
	// BeginWait is called on the goroutine of the call, before its first sleep: the call was refused and may wait, or
	// another call of the process is before it. BeginWait is called once for each wait, of which a call may have several.
	BeginWait(caller *Caller)
}

// QueueMode is how a waiter queues with the other waiters of its process.
type QueueMode uint8

const (
	// FIFO: behind the earlier waiters of the same QueueKey and QueueClass.
	FIFO QueueMode = iota
	// OneFirst, with a Requester: as FIFO, and only a waiter without others in its local queue makes a request of its own.
	// At most one waiter of a process can be served in a round trip, so the requests of the others share calls.
	OneFirst
	// Turn: the caller waits for a turn, which another goroutine of the process gives ([Caller.Wake]).
	Turn
	// Cohort: the request serves the callers of mode Turn with the same QueueKey and QueueClass. It belongs to no single
	// call.
	Cohort
	// Alone: in no local queue, for requests that must never wait for another waiter. An acquisition under a hold would
	// be a deadlock in the local queue, because the waiters of the queue wait for that hold
	// (TestLocalQueue_Alone_IsNotInIt).
	Alone
	// Yielding: as Alone, and the call gives up without a request while a waiter in a local queue of its key is refused.
	// Otherwise repeated requests would overtake that waiter again and again.
	Yielding
)

// isAlone reports whether the waiter stands in no local queue.
func (m QueueMode) isAlone() bool { return m >= Alone }

// Answer is the result of one request.
type Answer struct {
	Granted bool
	Left    time.Duration // until the holder's lease ends; negative: it has no lease, or its end is not known

	// RepeatIn bounds the time until the next request, because an earlier request may yet be granted, or, for a Requester,
	// because a lease ends then; 0: no bound.
	RepeatIn time.Duration

	// For a Taker's request.
	Release       Announcement // how the holder's release will be published
	Ticket        int64        // of the waiter's entry in the server's queue; 0: no entry
	Sent          time.Time    // when the request was sent
	OwnerReplaced bool         // the waiter has a new owner; also set with an error
	Retry         bool         // for a Requester: the call had too many waiters to request for this waiter
}

// Announcement is how a holder's release reaches the waiters.
type Announcement uint8

// The announcements of a release.
const (
	AsGrant   Announcement = iota // as a grant to the next waiter
	OnChannel                     // on Request.Channel only
	Nowhere                       // in no message
)

// Wait waits until a request is granted, and then returns nil. It returns *GaveUp if ctx, Until or the Waiters end
// first. It returns an error of Try if another request would not help.
func (q *Waiters) Wait(ctx context.Context, request Request) error {
	if err := q.Ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	if request.QueueKey == "" {
		request.QueueKey = request.Name
	}
	if request.Mode == Yielding && q.mustYield(&request) {
		return &GaveUp{Left: -1}
	}
	caller := q.enterLocalQueue(ctx, request)
	defer caller.Leave()
	if caller.joint.requester != nil {
		err := caller.contendTogether()
		caller.granted = err == nil
		return err
	}
	err := caller.becomeContender()
	if err == nil {
		err = caller.contend()
	}
	caller.granted = err == nil
	return err
}

// becomeContender awaits that the waiters before this waiter leave the local queue, and prepares its first request.
func (w *Caller) becomeContender() error {
	if w.standsBehind() && !w.isContender() {
		w.reportWaiting()
		for !w.isContender() {
			if done, _ := w.endedByOther(); done {
				return nil
			}
			select {
			case <-w.wakeup:
			case <-w.waitContext().Done():
				return w.gaveUp()
			}
		}
	}
	w.contends = !w.request.Mode.isAlone()
	w.prepare()
	return nil
}

// isContender reports whether the waiter is the contender of its local queue.
func (w *Caller) isContender() bool {
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.localQueue.contender == w
}

// standsBehind reports whether the waiter stands behind the others of its local queue, until it contends.
func (w *Caller) standsBehind() bool { return w.request.Mode == FIFO && w.joint.requester == nil }

// Enter begins a wait of mode Turn or Cohort. The caller must call Leave.
func (q *Waiters) Enter(ctx context.Context, request Request) *Caller {
	caller := q.enterLocalQueue(ctx, request)
	caller.contends = request.Mode == Cohort
	return caller
}

// Await returns nil when the caller is woken, and *GaveUp if the caller's time is over.
func (w *Caller) Await() error {
	w.reportWaiting()
	var timeUp <-chan time.Time
	if !w.request.Until.IsZero() {
		timer := time.NewTimer(time.Until(w.request.Until))
		defer timer.Stop()
		timeUp = timer.C
	}
	var givenUp <-chan struct{}
	if w.waitCtx != nil { // see GiveUp
		givenUp = w.waitCtx.Done()
	}
	select {
	case <-w.wakeup:
		w.waiters.onWakeup(w.ctx, w.request.Name, true)
		return nil
	case <-timeUp:
	case <-givenUp:
	case <-w.ctx.Done():
	case <-w.waiters.ctx.Done():
	}
	return w.gaveUp()
}

// GiveUp returns a function that ends the wait like the end of Request.Until. It is called in Watcher.BeginWait. The
// function may be called by any goroutine, and also after the wait, when it does nothing.
func (w *Caller) GiveUp() func() {
	ctx, cancel := context.WithCancel(w.waitContext())
	w.waitCtx, w.cancels = ctx, append(w.cancels, cancel)
	return cancel
}

// Wake ends the sleep of a caller. A cohort then makes its next request.
func (w *Caller) Wake() { signal(w.wakeup) }

// Try makes the first request of a cohort, until the caller's time is over. done: the request was granted, or failed
// with err. err is *GaveUp if the caller's time is over.
func (w *Caller) Try(until time.Time) (done bool, err error) {
	w.prepare()
	began := time.Now()
	answer, err := w.sendRequest()
	return w.Tried(until, began, answer, err)
}

// Tried records the result of the first request of a cohort, which was sent at began, before Enter. The results are as
// of Try. That request had no entry, so a refused waiter makes another request at once, even if the process has
// subscribed to grants meanwhile: a waiter that slept now would be in no queue.
func (w *Caller) Tried(until, began time.Time, answer Answer, err error) (bool, error) {
	w.request.Until = until
	done, err := w.recordResult(began, answer, err)
	if w.granted = done && err == nil; DidGiveUp(err) {
		w.results.tries = 0 // the next request, for the other callers, is made at once
	}
	return done, err
}

// Contend makes requests for a cohort until a request is granted, or fails. It reads each reply: only the end of the
// Waiters makes it give up.
func (w *Caller) Contend(ctx context.Context) error {
	w.ctx, w.waitCtx, w.request.Until = ctx, w.waiters.ctx, time.Time{}
	if w.results.tries == 0 {
		w.prepare()
	}
	err := w.contend()
	w.granted = err == nil
	return err
}

// Ended returns why a wait under ctx is over: the Waiters are closed, or ctx has ended. It returns nil if the wait goes
// on.
func (q *Waiters) Ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	return errs.Ended(ctx)
}
