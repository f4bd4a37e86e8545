// Package batch lets the requests of one process share calls. The first request is sent at once. Requests that come
// while it is under way are sent together.
package batch

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	// maxBatch is the maximum number of requests in a call. A call of 128 claimants takes the server some 200 us, and the
	// server does nothing else meanwhile.
	maxBatch      = 128
	defaultCalls  = 64
	defaultWindow = 100 * time.Microsecond
)

// Options are the terms on which requests share calls. The bounds have defaults; the other fields may stay zero, except
// Bound and ErrTimeout.
type Options struct {
	// MaxBatch is the maximum number of requests in a call, 1 to 128. Negative: every request is sent alone, at once, even
	// if others are under way. Defaults to 128.
	MaxBatch int
	// MaxCalls is the maximum number of calls under way. Defaults to 64.
	MaxCalls int
	// Window is how long the first request of a call that is not full waits for more, while other calls are under way.
	// Defaults to 100 us.
	Window time.Duration
	// WindowPerRequest, if it is set, makes the window shorter: it is as long for each request under way, Window at most.
	// It needs MinInFlight.
	WindowPerRequest time.Duration
	// MinInFlight is the number of requests, sent or waiting, from which on requests share calls. With fewer requests
	// under way each is sent alone, at once, side by side: then the wait for the end of a call costs more than a shared
	// call saves. 0: requests share from the second on.
	MinInFlight int64
	// Pays, if MinInFlight is set, is the mean number of requests in a call from which on sharing pays. If the mean is
	// lower, as with many objects that have few requests each, the next aloneFor requests are sent alone. 0: sharing
	// always pays.
	Pays int64
	// Near is the longest duration of a call for which one call at a time suffices, or two if SplitInHalf is set. One more
	// call is useful for each Near that a call takes. 0: MaxCalls are useful.
	Near time.Duration
	// SplitInHalf, if MinInFlight is set, also sends the open batch when it has half of the requests under way. One half
	// is answered while the other is on its way, and neither waits for a timer, which in an idle program comes up to 1 ms
	// late. A server that is far away needs more calls than two: see Near.
	SplitInHalf bool
	// Bound is the maximum wait of a caller, whatever its context allows. The error is then ErrTimeout.
	Bound      time.Duration
	ErrTimeout error
	// Spawn runs a function that sends calls whose callers may have left.
	Spawn func(func())
}

// Check checks the options and fills in the defaults.
func (o *Options) Check() error {
	if o.MaxBatch > maxBatch {
		return errs.InvalidOption("MaxBatch", o.MaxBatch,
			fmt.Sprintf("between 1 and %d, 0 for the default, or negative for none", maxBatch))
	}
	o.MaxBatch, o.MaxCalls, o.Window = cmp.Or(o.MaxBatch, maxBatch), cmp.Or(o.MaxCalls, defaultCalls), cmp.Or(o.Window,
		defaultWindow)
	return nil
}

// Batcher combines the requests of one kind for one object:
//
//   - If no call is under way, the request is sent alone, at once, on its caller's goroutine.
//   - Otherwise it joins the open batch.
//   - The batch is sent when it is full, or when its first request came a Window ago, unless MaxCalls are under way
//     (see SplitInHalf).
//   - When a call is answered, the next batch is sent, full or not.
//
// A call carries the values of the context of its first request. So its span is in the trace of that caller, and in no
// other trace.
//
// A Batcher keeps as many calls under way as it has batches to fill. With one call at a time, and batches of fixed
// size, sharing would be several times slower than single calls as soon as the server is a millisecond away. A Batcher
// is empty while no call is under way.
type Batcher[Q, A any] struct {
	// Options must have passed Check.
	Options *Options
	// Run answers the requests of one call.
	Run func(ctx context.Context, requests []*Request[Q, A])
	// Alone answers a request that is sent by itself, at once, and makes nothing that lives longer; nil: Run does. Alone
	// itself checks whether ctx has ended.
	Alone func(ctx context.Context, ask Q) (A, error)
	// Abandoned is called with requests that were answered without an error after their callers had left. It may be nil.
	Abandoned func(requests []*Request[Q, A])
	// Calls returns how many calls are useful at the moment, at least 1, and at most Options.MaxCalls count; nil: see
	// Options.Near. It must not block.
	Calls func() int
	// Shared, if set, is called before each call that requests could join, with the call's context and their number. A
	// request that is sent alone, at once, is no such call.
	Shared func(ctx context.Context, requests int)
	// Errors name the operation What and the key Key.
	What, Key string

	inFlight  atomic.Int64 // requests under way, if MinInFlight is set
	roundTrip atomic.Int64 // duration of a call in ns, if Near is set
	payoff    payoff       // if Pays is set

	mu            sync.Mutex
	open          *batch[Q, A]
	ready         []*batch[Q, A] // full batches that wait for a call
	callsInFlight int
}

// CheapCalls returns the terms under which requests share calls that each cost no more than the call itself, such as an
// INCRBY.
//
//   - Sharing begins at four requests under way. With two, two goroutines would lose a quarter of their rate; with 24,
//     ten goroutines would gain nothing.
//   - The mean call must carry two requests. With 256 goroutines on 64 counters, calls of one or two requests were four
//     times as slow as INCR.
//   - At most four shared calls are under way, and two are enough for each 200 µs that a call takes.
func CheapCalls() Options {
	return Options{MaxBatch: maxBatch, MaxCalls: 4, Window: defaultWindow, MinInFlight: 4, Pays: 2, SplitInHalf: true,
		Near: 200 * time.Microsecond}
}

// Lone bounds the context of a call with a single request by the patience of its caller. The call may have been meant
// for more requests whose callers left before it was sent. The context of a call with several requests stays as it is.
func Lone[Q, A any](ctx context.Context, requests []*Request[Q, A]) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if len(requests) > 1 || requests[0].Until.IsZero() || bounded && !requests[0].Until.Before(deadline) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, requests[0].Until)
}

// Request is one request in a batch. Until the batch is answered, Answer and Err belong to the call.
type Request[Q, A any] struct {
	Ctx context.Context // the caller's context, for the values in it
	Ask Q
	// Until is the end of the caller's patience in a shared call; zero: the end of the call's context.
	Until time.Time

	Answer  A
	Err     error
	hasLeft bool // the caller no longer waits; guarded by Batcher.mu
}

// Each returns a Run for calls that answer every request by itself, in the order of the requests. won reports whether
// an answer grants something.
//
//   - If call returns answers and no error, each request gets its answer.
//   - If call returns answers and an error, replicas have not confirmed them. A granted request gets the error, and a
//     refused request its answer, because a refusal needs no replica.
//   - If call returns no answers, every request gets the error.
func Each[Q, A any](call func(ctx context.Context, asks []Q) ([]A, error),
	won func(A) bool) func(context.Context, []*Request[Q, A]) {
	return func(ctx context.Context, requests []*Request[Q, A]) {
		asks := make([]Q, len(requests))
		for i, request := range requests {
			asks[i] = request.Ask
		}
		answers, err := call(ctx, asks)
		for i, request := range requests {
			if answers == nil || err != nil && won(answers[i]) {
				request.Err = err
			} else {
				request.Answer = answers[i]
			}
		}
	}
}

// batch is the content of one call, guarded by Batcher.mu.
type batch[Q, A any] struct {
	requests       []*Request[Q, A]
	lastPatience   time.Time // the latest end of a caller's patience
	windowTimer    *time.Timer
	sent           bool
	answered       bool
	presentCallers int // callers of a sent batch that still wait
	cancel         context.CancelFunc
	done           chan struct{} // closed when answered: one close wakes all callers

	// Callers whose context lasts for Bound wait for ended alone, without a deadline, because a receive costs half as
	// much as a select. ended is closed when the batch is answered, or when the patience of these callers ends. In the
	// second case expired is true. expired is not written afterwards.
	ended         chan struct{}
	expired       bool
	boundAt       time.Time // the end of the patience of these callers
	patienceTimer *time.Timer
}

// Do answers one request.
func (l *Batcher[Q, A]) Do(ctx context.Context, ask Q) (A, error) {
	if l.Options.MinInFlight == 0 {
		return l.do(ctx, ask, true)
	}
	defer l.leave()
	canShare := l.enter() && !l.payoff.sendsAlone()
	if l.Alone != nil && (!canShare || l.Options.MaxBatch < 0) {
		return l.Alone(ctx, ask)
	}
	return l.do(ctx, ask, canShare)
}

// enter counts a request in, and reports whether enough requests are under way to share calls. leave counts it out.
func (l *Batcher[Q, A]) enter() (canShare bool) { return l.inFlight.Add(1) >= l.Options.MinInFlight }
func (l *Batcher[Q, A]) leave()                 { l.inFlight.Add(-1) }

// do answers one request that was counted in. If canShare is set, it shares a call when others are under way.
func (l *Batcher[Q, A]) do(ctx context.Context, ask Q, canShare bool) (none A, _ error) {
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnavailable, l.What, l.Key, errs.Cut(errs.Ended(ctx)))
	}
	request := &Request[Q, A]{Ctx: ctx, Ask: ask}
	if l.Options.MaxBatch < 0 || !canShare {
		l.Run(ctx, []*Request[Q, A]{request})
		return request.Answer, request.Err
	}
	l.mu.Lock()
	if l.callsInFlight == 0 {
		l.callsInFlight++
		l.mu.Unlock()
		return l.sendAlone(ctx, request)
	}
	joined, end := l.join(ctx, request)
	l.mu.Unlock()

	var gaveUp error
	if callerDone := ctx.Done(); callerDone == nil {
		<-end
	} else {
		select {
		case <-end:
		case <-callerDone:
			gaveUp = errs.Cut(errs.Ended(ctx))
		}
	}
	switch {
	case gaveUp != nil:
	case end == joined.ended && joined.expired:
		gaveUp = l.Options.ErrTimeout
	default:
		return request.Answer, request.Err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case joined.answered:
		// The reply came first. Without it here a unit would be lost (TestClaimAny_CallerLeavesItsBatch_LosesNoUnit of
		// package stock).
		return request.Answer, request.Err
	case joined.sent:
		request.hasLeft = true // send reads it when the call is answered
		if joined.presentCallers--; joined.presentCallers == 0 {
			joined.cancel() // no caller is left
		}
		return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnknownOutcome, l.What, l.Key, gaveUp)
	}
	request.hasLeft = true
	return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnavailable, l.What, l.Key, gaveUp)
}

// sendAlone sends one request on the caller's goroutine.
func (l *Batcher[Q, A]) sendAlone(ctx context.Context, request *Request[Q, A]) (A, error) {
	defer func() {
		if following := l.startNext(); following != nil {
			l.Options.Spawn(func() { l.sendAll(following) })
		}
	}()
	l.run(ctx, []*Request[Q, A]{request})
	return request.Answer, request.Err
}

// payoff measures whether it pays that requests share calls.
type payoff struct {
	meanSize  atomic.Int64 // 256 times the mean number of requests in a call; 0: not known
	aloneLeft atomic.Int64 // the number of requests that will still be sent alone, because sharing did not pay
}

// aloneFor is how many requests are sent alone when sharing has not paid.
const aloneFor = 256

// sendsAlone reports whether the next request is sent alone, because sharing has not paid.
func (p *payoff) sendsAlone() bool {
	if p.aloneLeft.Load() <= 0 {
		return false
	}
	p.aloneLeft.Add(-1)
	return true
}

// recordSize updates the mean size with the size of a call, on these terms. Two calls that end at once may lose one of
// the updates.
func (p *payoff) recordSize(size int64, terms *Options) {
	meanSize := cmp.Or(p.meanSize.Load(), terms.MinInFlight<<8)
	if meanSize += (size<<8 - meanSize) / 4; meanSize < terms.Pays<<8 {
		p.aloneLeft.Store(aloneFor)
		meanSize = 0
	}
	p.meanSize.Store(meanSize)
}

// run makes a call, and records its duration. A faster call counts at once, a slower one little, because it may have
// waited for the processor. Two calls that end at once may lose one of the updates. A call that failed says nothing
// about the way to the server.
func (l *Batcher[Q, A]) run(ctx context.Context, requests []*Request[Q, A]) {
	if l.Options.Pays > 0 {
		l.payoff.recordSize(int64(len(requests)), l.Options)
	}
	if l.Options.Near == 0 {
		l.Run(ctx, requests)
		return
	}
	began := time.Now()
	l.Run(ctx, requests)
	if requests[0].Err != nil {
		return
	}
	l.recordDuration(int64(time.Since(began)))
}

func (l *Batcher[Q, A]) recordDuration(duration int64) {
	current := l.roundTrip.Load()
	if current > 0 && duration > current {
		duration = current + (duration-current)/128
	}
	l.roundTrip.Store(duration)
}

// sendAll makes the call of next, and then those of the batches that follow it. A goroutine per batch would grow its
// stack each time.
func (l *Batcher[Q, A]) sendAll(next *batch[Q, A]) {
	for next != nil {
		l.send(next)
		next = l.startNext()
	}
}

// join puts a request into the open batch. end is closed when the request is answered, or Bound is over. A caller whose
// context ends sooner must also wait for that. Called with mu held.
func (l *Batcher[Q, A]) join(ctx context.Context, request *Request[Q, A]) (joined *batch[Q, A], end <-chan struct{}) {
	joined = l.open
	if joined == nil {
		joined = &batch[Q, A]{done: make(chan struct{}), requests: make([]*Request[Q, A], 0, min(16, l.Options.MaxBatch))}
		l.open = joined
		if l.callsInFlight < l.callLimit() && l.Options.MaxBatch > 1 {
			joined.windowTimer = time.AfterFunc(l.window(), func() { l.endWindow(joined) })
		}
	}
	joined.requests = append(joined.requests, request)
	until, leavesEarly := ctx.Deadline()
	leavesEarly = leavesEarly && time.Until(until) < l.Options.Bound
	switch {
	case leavesEarly:
		end = joined.done
	case joined.ended == nil:
		// This is the first caller whose context lasts for Bound. The patience of later ones ends with its own.
		joined.boundAt = time.Now().Add(l.Options.Bound)
		joined.ended = make(chan struct{})
		joined.patienceTimer = time.AfterFunc(l.Options.Bound, func() { l.endPatience(joined) })
		fallthrough
	default:
		end = joined.ended
	}
	if !leavesEarly {
		until = joined.boundAt
	}
	request.Until = until
	if until.After(joined.lastPatience) {
		joined.lastPatience = until
	}
	if len(joined.requests) == l.Options.MaxBatch ||
		l.Options.SplitInHalf && int64(2*len(joined.requests)) >= l.inFlight.Load() && l.callsInFlight < l.callLimit() {
		l.closeOpen()
		if l.callsInFlight < l.callLimit() {
			l.callsInFlight++
			l.Options.Spawn(func() { l.sendAll(joined) })
		} else {
			l.ready = append(l.ready, joined)
		}
	}
	return joined, end
}

// endPatience ends the wait of all callers whose contexts last for Bound, unless the batch is answered.
func (l *Batcher[Q, A]) endPatience(shared *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !shared.answered {
		shared.expired = true
		close(shared.ended)
	}
}

// callLimit returns how many calls may be under way. Called with mu held.
func (l *Batcher[Q, A]) callLimit() int {
	switch {
	case l.Calls != nil:
		return min(l.Calls(), l.Options.MaxCalls)
	case l.Options.Near > 0:
		useful := 1 + int(l.roundTrip.Load()/int64(l.Options.Near))
		if l.Options.SplitInHalf {
			useful++
		}
		return min(useful, l.Options.MaxCalls)
	}
	return l.Options.MaxCalls
}

// window returns how long the first request of a call waits for more.
func (l *Batcher[Q, A]) window() time.Duration {
	if perRequest := l.Options.WindowPerRequest; perRequest > 0 {
		return min(time.Duration(l.inFlight.Load())*perRequest, l.Options.Window)
	}
	return l.Options.Window
}

// closeOpen closes the open batch to more requests. Called with mu held.
func (l *Batcher[Q, A]) closeOpen() {
	if l.open.windowTimer != nil {
		l.open.windowTimer.Stop()
	}
	l.open = nil
}

// endWindow sends the batch at the end of its window, if it is still open.
func (l *Batcher[Q, A]) endWindow(shared *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == shared && l.callsInFlight < l.callLimit() {
		l.closeOpen()
		l.callsInFlight++
		l.Options.Spawn(func() { l.sendAll(shared) })
	}
}

// startNext ends a call, and returns the batch that takes its place; nil if there is none.
func (l *Batcher[Q, A]) startNext() (next *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.ready) > 0:
		next, l.ready = l.ready[0], l.ready[1:]
	case l.open != nil:
		next = l.open
		l.closeOpen()
	default:
		l.callsInFlight--
	}
	return next
}

// send makes the call of one batch.
func (l *Batcher[Q, A]) send(shared *batch[Q, A]) {
	l.mu.Lock()
	wanted := make([]*Request[Q, A], 0, len(shared.requests))
	for _, request := range shared.requests {
		if !request.hasLeft { // a caller that left earlier got ErrUnavailable: its request was not sent
			wanted = append(wanted, request)
		}
	}
	shared.sent, shared.presentCallers = true, len(wanted)
	ctx := context.Context(context.Background())
	if len(wanted) > 0 {
		ctx = context.WithoutCancel(wanted[0].Ctx) // a call has one parent in the trace: the first request's caller
	}
	ctx, shared.cancel = context.WithDeadline(ctx, shared.lastPatience)
	defer shared.cancel()
	l.mu.Unlock()
	if len(wanted) > 0 {
		if l.Shared != nil {
			l.Shared(ctx, len(wanted))
		}
		l.run(ctx, wanted)
	}

	l.mu.Lock()
	shared.answered = true
	var abandoned []*Request[Q, A]
	if l.Abandoned != nil {
		for _, request := range wanted {
			if request.hasLeft && request.Err == nil {
				abandoned = append(abandoned, request)
			}
		}
	}
	if shared.ended != nil && !shared.expired {
		close(shared.ended)
		shared.patienceTimer.Stop()
	}
	l.mu.Unlock()
	close(shared.done)
	if abandoned != nil {
		l.Abandoned(abandoned)
	}
}
