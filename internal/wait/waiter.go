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
	waiters      *Waiters
	request      Request
	call         listedCall
	wakeup       chan struct{}
	waitReported bool // Waiters.waits was called
	contends     bool // it contends, and is not alone
	granted      bool

	// For how long it waits.
	ctx     context.Context // the caller's
	waitCtx context.Context // ctx, Until and the queue's end together; made when first needed
	cancels []func()

	// What its tries have found.
	tries        int
	answer       Answer        // to the last
	leaseLeft    time.Duration // what was left of the holder's lease at asked; negative: unknown
	answeredAt   time.Time     // when it was last answered
	lastErr      error         // why the last try failed; nil if it was answered
	failures     int           // tries in a row that failed
	silentSince  time.Time     // when the first of these was sent
	silentFor    time.Duration // how long the last answer took, with the tries before it that failed
	everAnswered bool          // some try was answered
	isRefused    bool          // some try was refused: the caller counts in localQueue.refused

	// How it hears of releases, where these name no waiter.
	sub               *pubsub.Subscription
	subscribeRefusals int             // refusals in a row of a subscription that may soon be granted
	messagesReady     <-chan struct{} // with Request.OnMessage: receives a value when messages have come
	endedByMessage    bool            // likewise: one of them has ended the wait

	// Its place in the server's queue, from which releases hand over. Guarded by Waiters.mu from register on.
	entry        *QueueEntry // nil, or &entryValue
	entryValue   QueueEntry
	grantSub     *grantSubscription
	grant        *Grant
	ticket       int64     // that the newest answer named
	ticketSentAt time.Time // when the call was sent that got this answer
	mayBeQueued  bool      // a call was sent that may have put this caller into the server's queue
	handedOver   bool      // a release has made it the holder

	// Its place in a local queue. Guarded by Waiters.mu.
	Links[*Caller]
	localQueue *localQueue
	subscribed bool          // a message says that a release has come: it needs no wake-up
	admission  chan struct{} // of a Paced caller: closed when it is to ask
	isAdmitted bool          // likewise: it counts in pace.asking
	requester  Requester     // its Taker; nil unless it is one
	state      requestState
	isWanted   bool // it is in queueRequests.wanted
	mustWait   bool // it was refused, or others wait before it
	done       bool // an answer that another goroutine read has ended its wait, with err
	doneErr    error
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
type requestState uint8

const (
	unlisted requestState = iota
	waiting
	requested
	reading
	deciding
	abandoned
)

// waitContext returns the context that ends as soon as there is any reason to stop waiting.
func (w *Caller) waitContext() context.Context {
	if w.waitCtx == nil {
		ctx, cancel := context.WithCancelCause(w.ctx)
		unlink := context.AfterFunc(w.waiters.ctx, func() { cancel(errs.ErrClosed) })
		w.cancels = append(w.cancels, func() { unlink(); cancel(nil) })
		if !w.request.Until.IsZero() {
			var cancelTimer context.CancelFunc
			ctx, cancelTimer = context.WithDeadlineCause(ctx, w.request.Until, errTimeUp)
			w.cancels = append(w.cancels, cancelTimer)
		}
		w.waitCtx = ctx
	}
	return w.waitCtx
}

var errTimeUp = errors.New("waitTime is over")

func (w *Caller) gaveUp() error {
	gaveUp := &GaveUp{Left: w.leaseLeft, Failure: w.lastErr, Cause: w.waiters.Ended(w.ctx)}
	if w.localQueue != nil {
		w.waiters.mu.Lock()
		queue := w.localQueue
		if !queue.freeAt.IsZero() {
			gaveUp.Left = max(0, time.Until(queue.freeAt))
		}
		if !w.contends { // it never asked itself: only the contender knows anything
			gaveUp.Failure = queue.lastErr
		}
		w.waiters.mu.Unlock()
	}
	return gaveUp
}

// endWaitContext ends the contexts that were made for the waiter's patience.
func (w *Caller) endWaitContext() {
	for _, stop := range w.cancels {
		stop()
	}
	w.cancels, w.waitCtx = w.cancels[:0], nil
}

// Leave ends the wait. The Caller is not used afterwards.
func (w *Caller) Leave() {
	w.endWaitContext()
	switch {
	case w.sub == nil:
	case w.request.Own:
		accessor.Of[accessor.Subscription](w.sub).Discard()
	default:
		w.sub.Close()
	}
	w.listenForLaterCallers()
	w.exitLocalQueue()
}

// note keeps what the last try found, for the waiters behind this one too: the rest of the holder's lease, or why the
// server could not be asked.
func (w *Caller) recordFinding(left time.Duration, failure error) {
	w.lastErr = failure
	if failure == nil {
		w.leaseLeft, w.answeredAt = left, time.Now()
	}
	if w.localQueue == nil {
		return
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	queue := w.localQueue
	queue.lastErr = failure
	if failure == nil {
		if !w.isRefused {
			w.isRefused = true
			queue.refusedCount++
		}
		queue.freeAt = time.Time{}
		if left >= 0 {
			queue.freeAt = w.answeredAt.Add(left)
		}
	}
}

// move leaves the old channel of a waiter whose owner is another one now.
func (w *Caller) moveChannel(channel string) {
	if channel == "" || channel == w.request.Channel {
		return
	}
	w.request.Channel = channel
	if w.sub != nil {
		accessor.Of[accessor.Subscription](w.sub).Discard()
		w.sub = nil
	}
}
