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
	hubs
	pollCap time.Duration
	tells
	// Unclaimed, if set, is called with the owner of a grant, or of a place in the server's queue, for which no waiter is
	// there: it has left, and what it has left behind is to be released now. (Or it holds what was granted.) It is set
	// before the first wait, and must not block, nor call the Waiters.
	Unclaimed func(owner string)
	// Silence, if set, counts answers and requests without one. It is set before the first wait.
	Silence *Silence
	ctx     context.Context // ends with the client or the hub, with cause errs.ErrClosed
	cancel  context.CancelCauseFunc

	mu          sync.Mutex
	localQueues map[string]*localQueue // by key; see localQueue.next
	hearings
	bounds    lastBounds
	handOvers int64 // waits that a release has ended

	calls list[*Call] // all that wait
	spares
}

// spares are what most waits need for a moment only, kept for the next. Guarded by Waiters.mu.
type spares struct {
	freeQueues  []*localQueue
	freeWaiters []*waiter
}

type hubs struct {
	hub   *pubsub.Hub
	inner accessor.Hub[*pubsub.Subscription] // of hub
}

// tells are what the observer gets.
type tells struct {
	woken func(ctx context.Context, name string, byMessage bool)
	waits func(ctx context.Context, name string)
}

// hearings are how a process hears of grants, and who may get one. Guarded by Waiters.mu.
type hearings struct {
	byOwner   map[string]*waiter            // by owner: the waiters that may be granted unasked
	grantSubs map[string]*grantSubscription // by channel
	listens   map[string]*listening         // by channel: SUBSCRIBEs to grants
	// by kind of channel to which the user has no right: no new SUBSCRIBE before this
	denied map[string]time.Time
	gap    time.Time // when grants were last missed
}

// spare bounds how many of each are kept.
const spare = 64

// NewWaiters returns an empty Waiters. woken is called at every wake-up of a sleeping waiter, waits once for each
// request that has to wait for others; both may be nil.
func NewWaiters(hub *pubsub.Hub, pollCap time.Duration, woken func(ctx context.Context, name string, byMessage bool),
	waits func(ctx context.Context, name string)) *Waiters {
	inner := accessor.Of[accessor.Hub[*pubsub.Subscription]](hub)
	q := &Waiters{hubs: hubs{hub, inner}, pollCap: pollCap, tells: tells{woken, waits},
		localQueues: map[string]*localQueue{}}
	q.hearings = hearings{byOwner: map[string]*waiter{}, grantSubs: map[string]*grantSubscription{},
		listens: map[string]*listening{}, denied: map[string]time.Time{}}
	if q.woken == nil {
		q.woken = func(context.Context, string, bool) {}
	}
	if q.waits == nil {
		q.waits = func(context.Context, string) {}
	}
	q.ctx, q.cancel = context.WithCancelCause(inner.Context())
	return q
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
	// Group, if set, is that of the calls for which this request waits, which are listed ([Waiters.List]) in place of the
	// request. Such a request stands behind no other. Call, if set, is the one that waits by it, and is listed with it.
	Group *Group
	Call  *Call
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
func (q *Waiters) Wait(ctx context.Context, r Request) error {
	if err := q.Ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	if r.QueueKey == "" {
		r.QueueKey = r.Name
	}
	if r.Mode == Yielding && q.waiting(r.QueueKey) {
		return &GaveUp{Left: -1}
	}
	w := q.enter(ctx, r)
	defer w.leave()
	if w.requester != nil {
		err := w.acquireShared()
		w.granted = err == nil
		return err
	}
	err := w.becomeContender()
	if err == nil {
		if r.Mode == Paced && !w.pace() {
			err = w.gaveUp()
		} else {
			err = w.contend()
		}
	}
	w.granted = err == nil
	return err
}

// becomeContender has the waiter contend, when those before it in the local queue have left.
func (w *waiter) becomeContender() error {
	if w.queues() && !w.isContender() {
		w.waits()
		for !w.isContender() {
			if done, _ := w.served(); done {
				return nil
			}
			select {
			case <-w.wakeup:
			case <-w.waitContext().Done():
				return w.gaveUp()
			}
		}
	}
	if w.head = !w.r.Mode.alone(); w.r.Group != nil && w.head && w.r.Mode != Paced {
		w.q.mu.Lock()
		w.localQueue.contender = w
		w.q.mu.Unlock()
	}
	w.prepare()
	return nil
}

func (w *waiter) isContender() bool {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	return w.localQueue.contender == w
}

// queues reports whether the waiter stands behind others of its local queue, until it contends.
func (w *waiter) queues() bool { return w.r.Mode == FIFO && w.r.Group == nil && w.requester == nil }

// Resumable is a wait that several goroutines carry on, one after the other. It is used by one at a time.
type Resumable struct {
	w        *waiter
	contends bool // it is the contender
}

// Resume makes x a wait, which begins with the first call of its Wait. Its End must be called.
func (q *Waiters) Resume(x *Resumable, r Request) { x.w = q.enter(q.ctx, r) }

// Empty reports whether x was never made a wait, or has ended.
func (x *Resumable) Empty() bool { return x.w == nil }

// Wait is Waiters.Wait, with until for Request.Until. After a *GaveUp it may be called again, and goes on: what was
// found out is kept, and so is the place in the server's queue.
func (x *Resumable) Wait(ctx context.Context, until time.Time) (err error) {
	w := x.w
	w.endWaitContext()
	w.ctx, w.r.Until = ctx, until
	if err = w.q.Ended(ctx); err != nil {
		return &GaveUp{Left: w.known, Failure: w.failure, Cause: err}
	}
	if !x.contends {
		if err = w.becomeContender(); err != nil {
			return err
		}
		x.contends = true
	}
	err = w.contend()
	w.granted = err == nil
	return err
}

// End ends the wait, if there is one.
func (x *Resumable) End() {
	if x.w != nil {
		x.w.leave()
		x.w = nil
	}
}

// Ended returns why a wait under ctx is over: the queue is closed, or ctx has ended; nil: it is not.
func (q *Waiters) Ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	return errs.Ended(ctx)
}
