package wait

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
)

// Caller is one call that waits, or the contender of a cohort.
type Caller struct {
	q        *Waiters
	r        Request
	call     call
	wakeup   chan struct{}
	reported bool // Waiters.waits was called
	head     bool // it contends, and is not alone
	granted  bool

	// For how long it waits.
	ctx     context.Context // the caller's
	waitCtx context.Context // ctx, Until and the queue's end together; made when first needed
	stop    []func()

	// What its tries have found.
	tries        int
	answer       Answer        // to the last
	known        time.Duration // what was left of the holder's lease at asked; negative: unknown
	asked        time.Time     // when it was last answered
	failure      error         // why the last try failed; nil if it was answered
	failures     int           // tries in a row that failed
	silentSince  time.Time     // when the first of these was sent
	silence      time.Duration // how long the last answer took, with the tries before it that failed
	everAnswered bool          // some try was answered
	refused      bool          // some try was refused: the caller counts in localQueue.refused

	// How it hears of releases, where these name no waiter.
	sub      *pubsub.Subscription
	refusals int             // refusals in a row of a subscription that may soon be granted
	incoming <-chan struct{} // with Request.OnMessage: receives a value when messages have come
	answered bool            // likewise: one of them has ended the wait

	// Its place in the server's queue, from which releases hand over. Guarded by Waiters.mu from register on.
	entry      *QueueEntry // nil, or &entryValue
	entryValue QueueEntry
	grantSub   *grantSubscription
	grant      *Grant
	ticket     int64     // that the newest answer named
	held       time.Time // when the call was sent that got this answer
	queued     bool      // a call was sent that may have put this caller into the server's queue
	named      bool      // a release has made it the holder

	// Its place in a local queue. Guarded by Waiters.mu.
	Links[*Caller]
	localQueue *localQueue
	subscribed bool          // a message says that a release has come: it needs no wake-up
	turn       chan struct{} // of a Paced caller: closed when it is to ask
	asks       bool          // likewise: it counts in pace.asking
	requester  Requester     // its Taker; nil unless it is one
	state      memberState
	wanted     bool // it is in queueRequests.wanted
	told       bool // it was refused, or others wait before it
	done       bool // an answer that another goroutine read has ended its wait, with err
	err        error
}

// memberState is the state of a waiter with a Requester.
//
//	unlisted --refused, or others wait--> waiting --a call requests for it--> requested --replied--> reading
//	reading --refused--> waiting
//	reading --granted, or an error--> deciding
//	waiting --it looks at a grant--> deciding --which is not to be used--> waiting
//	waiting --its time is over--> deciding
//	requested --its time is over--> left
//	any of them --its wait ends--> unlisted
//
// What a waiter has learned is the goroutine's that requests in state reading, and its own in all others but requested,
// in which it is nobody's.
type memberState uint8

const (
	unlisted memberState = iota
	waiting
	requested
	reading
	deciding
	left
)

// waitContext returns the context that ends as soon as there is any reason to stop waiting.
func (w *Caller) waitContext() context.Context {
	if w.waitCtx == nil {
		ctx, cancel := context.WithCancelCause(w.ctx)
		unlink := context.AfterFunc(w.q.ctx, func() { cancel(errs.ErrClosed) })
		w.stop = append(w.stop, func() { unlink(); cancel(nil) })
		if !w.r.Until.IsZero() {
			var cancelTimer context.CancelFunc
			ctx, cancelTimer = context.WithDeadlineCause(ctx, w.r.Until, errTimeUp)
			w.stop = append(w.stop, cancelTimer)
		}
		w.waitCtx = ctx
	}
	return w.waitCtx
}

var errTimeUp = errors.New("waitTime is over")

func (w *Caller) gaveUp() error {
	g := &GaveUp{Left: w.known, Failure: w.failure, Cause: w.q.Ended(w.ctx)}
	if w.localQueue != nil {
		w.q.mu.Lock()
		l := w.localQueue
		if !l.freeBy.IsZero() {
			g.Left = max(0, time.Until(l.freeBy))
		}
		if !w.head { // it never asked itself: only the contender knows anything
			g.Failure = l.failure
		}
		w.q.mu.Unlock()
	}
	return g
}

// endWaitContext ends the contexts that were made for the waiter's patience.
func (w *Caller) endWaitContext() {
	for _, stop := range w.stop {
		stop()
	}
	w.stop, w.waitCtx = w.stop[:0], nil
}

// Leave ends the wait. The Caller is not used afterwards.
func (w *Caller) Leave() {
	w.endWaitContext()
	switch {
	case w.sub == nil:
	case w.r.Own:
		accessor.Of[accessor.Subscription](w.sub).Discard()
	default:
		w.sub.Close()
	}
	w.leftUnheard()
	w.exit()
}

// note keeps what the last try found, for the waiters behind this one too: the rest of the holder's lease, or why the
// server could not be asked.
func (w *Caller) note(left time.Duration, failure error) {
	w.failure = failure
	if failure == nil {
		w.known, w.asked = left, time.Now()
	}
	if w.localQueue == nil {
		return
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	l := w.localQueue
	l.failure = failure
	if failure == nil {
		if !w.refused {
			w.refused = true
			l.refused++
		}
		l.freeBy = time.Time{}
		if left >= 0 {
			l.freeBy = w.asked.Add(left)
		}
	}
}

// move leaves the old channel of a waiter whose owner is another one now.
func (w *Caller) move(channel string) {
	if channel == "" || channel == w.r.Channel {
		return
	}
	w.r.Channel = channel
	if w.sub != nil {
		accessor.Of[accessor.Subscription](w.sub).Discard()
		w.sub = nil
	}
}
