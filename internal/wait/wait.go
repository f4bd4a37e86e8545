// Package wait is the one place where anything waits for somebody else's lock, permit or latch.
//
// # The loop
//
// Try; subscribe and have it confirmed; try again; then sleep until a message, a wake-up from inside the process, the
// end of the holder's lease, or PollCap, whichever is first; and so on until granted or out of time.
//
//	waiter                         holder
//	try: held
//	                               release, publish        (nobody hears)
//	subscribe, confirmed
//	try: granted                                           without this try: asleep on a free lock
//	                                                       (TestAReleaseBetweenTheFirstTryAndTheSubscriptionIsFound)
//
// Messages are hints. One that is lost costs at most PollCap; one too many costs a try. Each waiter's place in the
// process is a semaphore: of all that wait for a key in the same manner, one contends on the server, the others stand
// behind it, first come first served.
//
// # Hand-over
//
// With a Taker the contender also stands in a queue on the server, and a release makes it the holder (handover.go).
// Everything above stays true: whatever becomes of grants, it asks at least every PollCap.
package wait

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
)

// Queue is the waiting room of one client.
type Queue struct {
	hub     *pubsub.Hub
	pollCap time.Duration
	woken   func(ctx context.Context, name string, byMessage bool)
	ctx     context.Context // ends when the client or the hub closes, with cause errs.ErrClosed
	cancel  context.CancelCauseFunc

	mu        sync.Mutex
	lines     map[string]*line              // by key; see line.next
	denied    map[string]time.Time          // by kind of channel: no new SUBSCRIBE before this, the user has no right to
	standing  map[string]*waiter            // by owner: those a grant may be meant for
	shared    map[string]*Shared            // by key, as long as anybody waits for the result
	grantSubs map[string]*grantSubscription // by channel
	gap       time.Time                     // when grants were last missed

	// What most waits need and are through with at once, kept for the next.
	freeLines   []*line
	freeWaiters []*waiter
}

// spare bounds what is kept.
const spare = 64

// NewQueue returns a queue. woken is told of every wake-up of a sleeping waiter; it may be nil.
func NewQueue(hub *pubsub.Hub, pollCap time.Duration, woken func(ctx context.Context, name string, byMessage bool)) *Queue {
	q := &Queue{hub: hub, pollCap: pollCap, woken: woken, lines: map[string]*line{}, denied: map[string]time.Time{}, standing: map[string]*waiter{}, shared: map[string]*Shared{}, grantSubs: map[string]*grantSubscription{}}
	if q.woken == nil {
		q.woken = func(context.Context, string, bool) {}
	}
	q.ctx, q.cancel = context.WithCancelCause(hub.Context())
	return q
}

// Close ends all waiting with errs.ErrClosed.
func (q *Queue) Close() { q.cancel(errs.ErrClosed) }

// Request is one wait.
type Request struct {
	Name    string // what woken is told
	Line    string // the key whose waiters stand in one line, if their Manner is the same; Name if it is empty
	Manner  string // of waiting
	Channel string // where releases are published
	Own     bool   // Channel is this waiter's alone: it is not kept subscribed afterwards, and MaxPoll bounds its sleep
	// Alone: do not stand in the process's line. For what can never wait for another waiter: a re-entry behind one
	// would be a deadlock, since its own owner holds the lock that the waiters in the line wait for.
	Alone bool
	// Yield, with Alone: give up unasked while a waiter in the line of that key waits for what it was refused, which this
	// request would overtake for as long as it is made.
	Yield bool
	// Until bounds the waiting, zero: only ctx does. If it has passed after the first try, that was the only one.
	Until time.Time
	// Try asks once. ctx ends with the caller's patience, but Until does not cut the first try short.
	Try func(ctx context.Context) (Answer, error)
	// Taker, if set, is asked in place of Try, and takes part in the hand-over; not with Alone.
	Taker Taker
	// Grants is where the grants for this process are published.
	Grants string
	// Backoff, if set, is how long to sleep after the n-th try in a row, from 0: the waiter polls, without any
	// subscription.
	Backoff func(n int) time.Duration
}

// Answer is what a try was told.
type Answer struct {
	Granted bool
	Left    time.Duration // until the holder's lease ends; negative if it has none or it is unknown

	// Of a Taker's call:
	Foreign bool      // the holder's release is only published on Request.Channel
	Ticket  int64     // the place in the server's queue; 0: none
	Sent    time.Time // when the call that was answered was sent
	Renamed bool      // the owner is another one now, also beside an error

	// Channel, if set, is where releases are published for this waiter from now on, also beside an error.
	Channel string
}

// Wait returns nil when a try was granted; *GaveUp when ctx, Until or the queue ended first; or the first error of Try
// that asking again cannot mend.
func (q *Queue) Wait(ctx context.Context, r Request) error {
	if err := q.ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	if r.Line == "" {
		r.Line = r.Name
	}
	if r.Yield && q.waiting(r.Line) {
		return &GaveUp{Left: -1}
	}
	w := q.enter(r, ctx)
	defer w.leave()
	if !r.Alone {
		if !w.line.front.TryAcquire(1) {
			if err := w.line.front.Acquire(w.patience(), 1); err != nil {
				return w.gaveUp()
			}
		}
		w.head = true
	}
	err := w.contend()
	w.granted = err == nil
	return err
}

func (q *Queue) ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	return errs.Ended(ctx)
}
