package wait

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
)

// Waiters holds all that wait in one client. It is safe for concurrent use.
type Waiters struct {
	hub          *pubsub.Hub
	hubInternals accessor.Hub[*pubsub.Subscription] // of hub
	pollCap      time.Duration

	// What the observer gets.
	onWakeup func(ctx context.Context, name string, byMessage bool)
	onWait   func(ctx context.Context, name string)
	// Unclaimed, if set, is called with the owner of a grant, or of a place in the server's queue, for which no waiter is
	// there: it has left, and what it has left behind is to be released now. (Or it holds what was granted.) It is set
	// before the first wait, and must not block, nor call the Waiters.
	Unclaimed func(owner string)
	// Silence, if set, counts answers and requests without one. It is set before the first wait.
	Silence *Silence
	ctx     context.Context // ends with the client or the hub, with cause errs.ErrClosed
	cancel  context.CancelCauseFunc

	mu          sync.Mutex
	calls       List[*listedCall]      // all that wait
	localQueues map[string]*localQueue // by key; see localQueue.next
	paceLimits  lastLimits
	handOvers   int64 // waits that a release has ended

	// How the process hears of grants, and who may get one. Guarded by mu.
	byOwner           map[string]*Caller            // by owner: the callers that may be granted unasked
	grantSubs         map[string]*grantSubscription // by channel
	pendingSubscribes map[string]*pendingSubscribe  // by channel: SUBSCRIBEs to grants
	deniedUntil       map[string]time.Time          // by kind of channel; the user has no right to it
	lastGapAt         time.Time                     // when grants were last missed

	// What most waits need for a moment only, kept for the next. Guarded by mu.
	freeQueues  []*localQueue
	freeCallers []*Caller
}

// spare bounds how many of each are kept.
const maxSpares = 128

// NewWaiters returns an empty Waiters. woken is called at every wake-up of a sleeping waiter, waits once for each
// request that has to wait for others; both may be nil.
func NewWaiters(hub *pubsub.Hub, pollCap time.Duration, woken func(ctx context.Context, name string, byMessage bool),
	waits func(ctx context.Context, name string)) *Waiters {
	inner := accessor.Of[accessor.Hub[*pubsub.Subscription]](hub)
	waiters := &Waiters{hub: hub, hubInternals: inner, pollCap: pollCap, onWakeup: woken, onWait: waits,
		localQueues: map[string]*localQueue{}, byOwner: map[string]*Caller{}, grantSubs: map[string]*grantSubscription{},
		pendingSubscribes: map[string]*pendingSubscribe{}, deniedUntil: map[string]time.Time{}}
	if waiters.onWakeup == nil {
		waiters.onWakeup = func(context.Context, string, bool) {}
	}
	if waiters.onWait == nil {
		waiters.onWait = func(context.Context, string) {}
	}
	waiters.ctx, waiters.cancel = context.WithCancelCause(inner.Context())
	return waiters
}

// Close ends all waiting with errs.ErrClosed.
func (q *Waiters) Close() { q.cancel(errs.ErrClosed) }

// Request is one wait.
type Request struct {
	Name string // as woken gets it
	// Of is what is waited for, and Began when the call that waits began: for Waits, which tells people.
	Of    any
	Began time.Time

	QueueKey string // the key whose waiters stand in one local queue, if their Manner is the same; Name if it is empty
	Manner   string // of waiting
	Channel  string // where releases are published
	Own      bool   // Channel is this waiter's alone: it is not kept subscribed afterwards, and MaxPoll bounds its sleep
	Mode     QueueMode
	// Until bounds the waiting; zero: only ctx does. If it has passed after the first try, that was the only one.
	Until time.Time
	// Try asks once. ctx ends with the caller's patience, but Until does not cut the first try short.
	Try func(ctx context.Context) (Answer, error)
	// OnMessage, if set, is given each message of Channel that the waiter hears once it is the contender, and reports
	// whether the message says by itself that the wait is over: then Try is not called again. After any other message it
	// is.
	OnMessage func(payload string) bool
	// Taker, if set, is asked in place of Try, and takes part in the hand-over, but not with Alone. The waiters of one
	// local queue are all Requesters, or none is.
	Taker Taker
	// Several: Try asks several servers, not the one of QueueKey alone.
	Several bool
	// Reach, with a Requester, is how long after it was sent a call of RequestAll may still run on the server.
	Reach time.Duration
	// FreeBy, if it is not zero, is until when this process itself holds what the caller waits for.
	FreeBy time.Time
	// Reported: an earlier request of the same call has reported that it waits.
	Reported bool
	// Grants is where the grants for this process are published.
	Grants string
	// Backoff, if set, is how long to sleep after the n-th try in a row, from 0: the waiter polls, without any
	// subscription.
	Backoff func(n int) time.Duration
}

// QueueMode is how a request queues with the others of this process.
type QueueMode uint8

const (
	// FIFO: behind those of its QueueKey and Manner that came before it.
	FIFO QueueMode = iota
	// Paced: in the local queue, but not behind another waiter. Each waiter makes its own request, and has a place of its
	// own in the server's queue, because the order that is kept there is that of all waiters. Where callers give up, few
	// of them make requests at once: see pace.
	Paced
	// Turn: the caller waits for a turn, which another goroutine of the process gives it ([Caller.Wake]).
	Turn
	// Cohort: the request is that of the callers with mode Turn of its QueueKey and Manner. It is no call itself.
	Cohort
	// Alone: in no local queue. It is for what must never wait for another waiter: an acquisition under a hold in the
	// local queue would be a deadlock, because that hold has what the waiters in the local queue wait for
	// (TestLocalQueue_Alone_IsNotInIt).
	Alone
	// Yielding is Alone, and the request gives up unasked while a waiter in the local queue of its key waits for what it
	// was refused. Otherwise requests that are repeated overtake that waiter for as long as they are made.
	Yielding
)

func (p QueueMode) alone() bool { return p >= Alone }

// Answer is what a try learned.
type Answer struct {
	Granted bool
	Left    time.Duration // until the holder's lease ends; negative if it has none or it is unknown

	// Soon: ask again after that, because an earlier try may yet be granted; 0: there is no reason.
	Soon time.Duration

	// Of a Taker's call:
	Foreign     bool      // the holder's release is only published on Request.Channel
	Unpublished bool      // the holder's release is published nowhere
	Ticket      int64     // the place in the server's queue; 0: none
	Sent        time.Time // when the call that was answered was sent
	Renamed     bool      // the owner is another one now; also with an error
	Again       bool      // of a Requester: the call was for too many, and has no answer for this one; request again

	// Channel, if set, is where releases are published for this waiter from now on; also with an error.
	Channel string
}

// Wait returns nil when a try was granted, *GaveUp when ctx, Until or the queue ended first, or the first error of Try
// for which asking again is of no use.
func (q *Waiters) Wait(ctx context.Context, request Request) error {
	if err := q.Ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	if request.QueueKey == "" {
		request.QueueKey = request.Name
	}
	if request.Mode == Yielding && q.anyRefused(request.QueueKey) {
		return &GaveUp{Left: -1}
	}
	caller := q.enterLocalQueue(ctx, request)
	defer caller.Leave()
	if caller.requester != nil {
		err := caller.contendTogether()
		caller.granted = err == nil
		return err
	}
	err := caller.becomeContender()
	if err == nil {
		if request.Mode == Paced && !caller.awaitAdmission() {
			err = caller.gaveUp()
		} else {
			err = caller.contend()
		}
	}
	caller.granted = err == nil
	return err
}

// becomeContender has the waiter contend, when those before it in the local queue have left.
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
	w.contends = !w.request.Mode.alone()
	w.prepare()
	return nil
}

func (w *Caller) isContender() bool {
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	return w.localQueue.contender == w
}

// queues reports whether the waiter stands behind others of its local queue, until it contends.
func (w *Caller) standsBehind() bool { return w.request.Mode == FIFO && w.requester == nil }

// Enter begins a wait of a mode that others serve or make requests for, Turn or Cohort. Its Leave must be called.
func (q *Waiters) Enter(ctx context.Context, request Request) *Caller {
	caller := q.enterLocalQueue(ctx, request)
	if request.Mode == Cohort {
		caller.contends = true
		caller.prepare()
	}
	return caller
}

// Await returns nil when the caller is woken, and *GaveUp if it is out of patience.
func (w *Caller) Await() error {
	w.reportWaiting()
	var late <-chan time.Time
	if !w.request.Until.IsZero() {
		timer := time.NewTimer(time.Until(w.request.Until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.wakeup:
		w.waiters.onWakeup(w.ctx, w.request.Name, true)
		return nil
	case <-late:
	case <-w.ctx.Done():
	case <-w.waiters.ctx.Done():
	}
	return w.gaveUp()
}

// Wake ends the sleep of a caller, or of a cohort's request, which is then made again.
func (w *Caller) Wake() { signal(w.wakeup) }

// Try makes the first request of a cohort, with the patience of the caller that makes it. done: it was granted, or
// failed with err, which is *GaveUp if that caller is out of patience.
func (w *Caller) Try(until time.Time) (done bool, err error) {
	w.request.Until = until
	done, err = w.try()
	if w.granted = done && err == nil; DidGiveUp(err) {
		w.tries = 0 // for the others the next request is made at once
	}
	return done, err
}

// Contend makes requests for a cohort until one is granted, or fails. Only the end of the Waiters makes it give up:
// each reply is read.
func (w *Caller) Contend(ctx context.Context) error {
	w.ctx, w.waitCtx, w.request.Until = ctx, w.waiters.ctx, time.Time{}
	err := w.contend()
	w.granted = err == nil
	return err
}

// Ended returns why a wait under ctx is over: the queue is closed, or ctx has ended; nil: it is not.
func (q *Waiters) Ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	return errs.Ended(ctx)
}
