package wait

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
)

// Caller is a waiter: a call that waits, or the contender of a cohort.
type Caller struct {
	waiters      *Waiters
	request      Request
	call         listedCall
	wakeup       chan struct{}
	waitReported bool // Request.Watcher and Waiters.onWait were called
	contends     bool // it makes requests for its local queue
	granted      bool

	// How long the waiter waits.
	ctx     context.Context // the caller's
	waitCtx context.Context // ends with ctx, Request.Until or the Waiters; made when first needed
	cancels []func()        // end waitCtx

	results  requestResults
	releases releaseMessages
	place    serverPlace // guarded by Waiters.mu from register on

	// The local queue. Guarded by Waiters.mu.
	Links[*Caller]
	localQueue *localQueue // nil with Alone
	joint      jointRequest
}

// requestResults is what a waiter knows by its requests.
type requestResults struct {
	tries        int           // requests made
	answer       Answer        // of the last request
	leaseLeft    time.Duration // of the holder's lease at answeredAt; negative: not known
	answeredAt   time.Time     // when the last reply arrived
	lastErr      error         // of the last request; nil if the server replied
	outage       outage        // of the requests
	silentFor    time.Duration // from the outage's first request, or from the last request's send, to the last reply
	everAnswered bool          // the server has replied to a request
	isRefused    bool          // the server has refused a request: the waiter counts in localQueue.refusedCount
}

// releaseMessages is a waiter's subscription to Request.Channel, for releases that name no waiter.
type releaseMessages struct {
	sub            *pubsub.Subscription
	refusals       int             // refusals of SUBSCRIBE in a row that may soon end
	messagesReady  <-chan struct{} // with Request.OnMessage: receives a value when messages have arrived
	subscribed     bool            // sub announces releases: the waiter needs no wake-up. Guarded by Waiters.mu
	endedByMessage bool            // Request.OnMessage has ended the wait
}

// serverPlace is a waiter's part in the hand-over: its entry in the server's queue, and the grant that may come.
type serverPlace struct {
	entry        *QueueEntry // nil before register, then &entryValue
	entryValue   QueueEntry
	grantSub     *grantSubscription
	grant        *Grant    // received and not used yet
	ticket       int64     // in the newest reply that named a ticket
	ticketSentAt time.Time // when the request of that reply was sent
	mayBeQueued  bool      // a request was sent that may have enqueued the waiter on the server
	handedOver   bool      // a grant has made the waiter the holder
}

// jointRequest is a waiter's part in the calls that request for many waiters of its local queue.
type jointRequest struct {
	requester Requester // Request.Taker as a Requester; nil: it is not a Requester
	state     requestState
	isWanted  bool // the waiter is in queueRequests.wanted
	mustWait  bool // its request was refused, or other waiters are before it
	done      bool // another goroutine has ended the wait, with doneErr
	doneErr   error
	// cancelReleases ends the subscription to QueueEntry.Channel; nil: there is no subscription.
	cancelReleases context.CancelFunc
}

// requestState is the state of a waiter with a Requester.
//
//	unlisted --refused, or others wait--> waiting --a call requests for it--> requested --replied--> reading
//	reading --refused--> waiting
//	reading --granted, or an error--> deciding
//	waiting --the waiter checks a grant--> deciding --the grant is not used--> waiting
//	waiting --its time is over--> deciding
//	requested --its time is over--> abandoned
//	any state --its wait ends--> unlisted
//
// In state reading the goroutine that made the call owns the fields of the requests' results. In state requested no
// goroutine does. In all other states the waiter's own goroutine does.
type requestState uint8

const (
	unlisted requestState = iota
	waiting
	requested
	reading
	deciding
	abandoned
)

// waitContext returns the context that ends with the first of the caller's ctx, Request.Until and the Waiters.
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

// gaveUp returns the error of a wait without a grant.
func (w *Caller) gaveUp() error {
	gaveUp := &GaveUp{Left: w.results.leaseLeft, Failure: w.results.lastErr, Cause: w.waiters.Ended(w.ctx)}
	if w.localQueue != nil {
		w.waiters.mu.Lock()
		queue := w.localQueue
		if !queue.freeAt.IsZero() {
			gaveUp.Left = max(0, time.Until(queue.freeAt))
		}
		if !w.contends { // it made no requests: only the contender's last error is known
			gaveUp.Failure = queue.lastErr
		}
		w.waiters.mu.Unlock()
	}
	return gaveUp
}

// endWaitContext ends the contexts that waitContext made.
func (w *Caller) endWaitContext() {
	for _, stop := range w.cancels {
		stop()
	}
	w.cancels, w.waitCtx = w.cancels[:0], nil
}

// Leave ends the wait. The Caller is not used afterwards.
func (w *Caller) Leave() {
	w.endWaitContext()
	if w.releases.sub != nil {
		w.releases.sub.Close()
	}
	w.listenForLaterCallers()
	w.exitLocalQueue()
}

// recordFinding records the result of the last request, also for the waiters behind this waiter: the rest of the
// holder's lease, or, if the server did not reply, the error.
func (w *Caller) recordFinding(left time.Duration, err error) {
	w.results.lastErr = err
	if err == nil {
		w.results.leaseLeft, w.results.answeredAt = left, time.Now()
	}
	if w.localQueue == nil {
		return
	}
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	queue := w.localQueue
	queue.lastErr = err
	if err == nil {
		if !w.results.isRefused {
			w.results.isRefused = true
			queue.refusedCount++
		}
		queue.freeAt = time.Time{}
		if left >= 0 {
			queue.freeAt = w.results.answeredAt.Add(left)
		}
	}
}
