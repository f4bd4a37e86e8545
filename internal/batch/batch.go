// Package batch lets the requests of one process share calls. The first request is sent at once. Requests that
// come while it is under way are sent together.
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
	// maxBatch is the most requests that share a call: a call of 128 claimants takes the server some 200 us, during which
	// it does nothing else.
	maxBatch      = 128
	defaultCalls  = 64
	defaultWindow = 100 * time.Microsecond
)

// Options say how requests share calls. The zero value has the defaults.
type Options struct {
	// MaxBatch is how many requests share a call at most, 1 to 128. Negative: every request is sent alone, at once, even
	// if others are under way. Defaults to 128.
	MaxBatch int
	// MaxCalls is how many calls are under way at most. Defaults to 64.
	MaxCalls int
	// Window is how long the first request of a call that is not full waits for more, while other calls are under way.
	// Defaults to 100 us.
	Window time.Duration
}

// Check checks the options and fills in the defaults.
func (o *Options) Check() error {
	switch {
	case o.MaxBatch > maxBatch:
		return errs.InvalidOption("MaxBatch", o.MaxBatch,
			fmt.Sprintf("between 1 and %d, 0 for the default, or negative for none", maxBatch))
	case o.MaxCalls < 0:
		return errs.InvalidOption("MaxCalls", o.MaxCalls, "at least 1, or 0 for the default")
	case o.Window < 0:
		return errs.InvalidOption("BatchWindow", o.Window, "0 for the default, or more")
	}
	o.MaxBatch, o.MaxCalls, o.Window = cmp.Or(o.MaxBatch, maxBatch), cmp.Or(o.MaxCalls, defaultCalls), cmp.Or(o.Window,
		defaultWindow)
	return nil
}

// Tally counts the calls that requests could join, and the requests in them. Several Batchers may have the same.
type Tally struct{ calls, requests atomic.Int64 }

// Counts returns what was counted so far.
func (t *Tally) Counts() (calls, requests int64) { return t.calls.Load(), t.requests.Load() }

// Batcher combines the requests of one kind for one object:
//
//   - If no call is under way, the request is sent alone, at once, on its caller's goroutine.
//   - Otherwise it joins the open batch.
//   - If the batch is full, or its first request came a Window ago, it is sent, unless MaxCalls are under way (see
//     SplitInHalf).
//   - When a call is answered, the next batch is sent, full or not.
//
// A call carries the values of the context of its first request. So its span is in that caller's trace, and in no
// other.
//
// One call at a time, with a batch of fixed size, is several times slower than no batches as soon as the server is a
// millisecond away. A Batcher keeps as many calls under way as there are batches to fill. It is empty while no call is
// under way.
type Batcher[Q, A any] struct {
	// Options are checked.
	Options *Options
	// Run answers the requests of one call.
	Run func(ctx context.Context, requests []*Request[Q, A])
	// Abandoned is called with requests that were answered without an error after their callers had left; nil if that does
	// not matter.
	Abandoned func(requests []*Request[Q, A])
	// Spawn runs what is sent for callers that may have left.
	Spawn func(func())
	// Bound is how long a caller waits at most, whatever its context allows. ErrTimeout is the error then.
	Bound      time.Duration
	ErrTimeout error
	// MinInFlight is how many requests must be under way, sent or waiting, before they share calls. With fewer each is
	// sent alone, at once, side by side: then waiting for a call to end costs more than a shared one saves. 0: they share
	// from the second on.
	MinInFlight int64
	// Pays, if MinInFlight is set, is how many requests a call must carry on the average for sharing to pay. If it is
	// fewer, as where each of many objects has few requests, the next aloneFor are sent alone. 0: it pays always.
	Pays int64
	// Alone answers a request that is sent by itself, at once, and makes nothing that lives longer; nil: Run does. It
	// looks itself whether ctx has ended.
	Alone func(ctx context.Context, ask Q) (A, error)
	// Calls is how many calls are useful at the moment, at least 1; nil: Options.MaxCalls, which is the most in any case.
	// It must not block.
	Calls func() int
	// Near, if Calls is nil, is how long a call takes for which two are useful, while one is answered and the other on its
	// way. One more is useful for each Near that calls take. 0: Options.MaxCalls are.
	Near time.Duration
	// Window is how long the first request of a call waits for more; nil: Options.Window. It must not block.
	Window func() time.Duration
	// SplitInHalf, if MinInFlight is set: the open batch is also sent when it has half of what is under way. One half is
	// answered while the other is on its way, and neither waits for a timer, which in an idle program comes up to 1 ms
	// late. A server that is far away needs more calls than two: see Calls.
	SplitInHalf bool
	// Tally counts the shared calls. A request that is sent alone, at once, is not counted.
	Tally *Tally
	// What and Key are the words of errors: what was asked of which key.
	What, Key string
	// Reads: its calls only ask, so none has an unknown outcome.
	Reads bool

	inFlight atomic.Int64 // requests under way, if MinInFlight is set
	trip     atomic.Int64 // ns that a call takes, if Near is set
	mean     atomic.Int64 // 256 times the requests in a call, if Pays is set; 0: not known
	lone     atomic.Int64 // requests that are to be sent alone

	mu    sync.Mutex
	open  *batch[Q, A]
	ready []*batch[Q, A] // full, waiting for a call
	calls int
}

// ForCheapCalls sets the terms under which requests share calls of which each takes no longer than a call itself costs,
// such as an INCRBY.
//
// They share from four under way on: from two, two goroutines lose a quarter of their rate; from 24, ten gain nothing.
// A call must carry two on the average: with 256 goroutines on 64 counters calls of one or two were four times as slow
// as INCR. At most four shared calls are under way, and two are enough for each 200 µs that one takes.
func (l *Batcher[Q, A]) ForCheapCalls() *Batcher[Q, A] {
	l.Options, l.MinInFlight, l.Pays, l.SplitInHalf, l.Near = cheapCalls, 4, 2, true, 200*time.Microsecond
	return l
}

var cheapCalls = func() *Options {
	o := &Options{MaxCalls: 4}
	if err := o.Check(); err != nil {
		panic(err)
	}
	return o
}()

// Lone bounds the context of a call that is for one request by that one's patience: the call may have been meant for
// others too, who left before it was sent. The context of a call for several is left as it is.
func Lone[Q, A any](ctx context.Context, requests []*Request[Q, A]) (context.Context, context.CancelFunc) {
	if len(requests) > 1 || requests[0].Until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, requests[0].Until)
}

// Request is one request in a batch. Until the batch is answered, Answer and Err belong to the call.
type Request[Q, A any] struct {
	Ctx context.Context // its caller's, for the values in it
	Ask Q
	// Until is when its caller's patience ends, in a shared call; zero: with the call's context.
	Until time.Time

	Answer A
	Err    error
	left   bool // the caller has gone; guarded by Batcher.mu
}

// Each is a Run for calls that answer every request by itself, in the order of the requests. won reports whether an
// answer grants something. If call returns answers and an error, replicas have not confirmed them: a request that was
// granted something gets the error, and a refusal, which needs no replica, is the answer. If call returns no answers,
// every request gets the error.
func Each[Q, A any](call func(ctx context.Context, asks []Q) ([]A, error),
	won func(A) bool) func(context.Context, []*Request[Q, A]) {
	return func(ctx context.Context, requests []*Request[Q, A]) {
		asks := make([]Q, len(requests))
		for i, r := range requests {
			asks[i] = r.Ask
		}
		answers, err := call(ctx, asks)
		for i, r := range requests {
			if answers == nil || err != nil && won(answers[i]) {
				r.Err = err
			} else {
				r.Answer = answers[i]
			}
		}
	}
}

// batch is what one call carries, guarded by Batcher.mu.
type batch[Q, A any] struct {
	requests []*Request[Q, A]
	until    time.Time   // when the last caller's patience ends
	timer    *time.Timer // of the window
	sent     bool
	answered bool
	waiting  int // callers of a sent batch that have not left
	cancel   context.CancelFunc
	done     chan struct{} // closed when answered: one close wakes all callers

	// Callers whose context lasts for Bound wait for ended alone, without a deadline, because a receive costs half as
	// much as a select. ended is closed when the batch is answered, or when the patience of these callers ends. In the
	// second case expired is true. expired is not written afterwards.
	ended   chan struct{}
	expired bool
	bound   time.Time // when that patience ends
	clock   *time.Timer
}

// Do answers one request.
func (l *Batcher[Q, A]) Do(ctx context.Context, ask Q) (A, error) {
	if l.MinInFlight == 0 {
		return l.do(ctx, ask, true)
	}
	defer l.leave()
	share := l.enter()
	if share && l.lone.Load() > 0 {
		l.lone.Add(-1)
		share = false
	}
	if l.Alone != nil && (!share || l.Options.MaxBatch < 0) {
		return l.Alone(ctx, ask)
	}
	return l.do(ctx, ask, share)
}

// enter counts a request in, and reports whether so many are under way that they share calls. leave counts it out.
func (l *Batcher[Q, A]) enter() (share bool) { return l.inFlight.Add(1) >= l.MinInFlight }
func (l *Batcher[Q, A]) leave()              { l.inFlight.Add(-1) }

// do answers one request, which was counted in; share: it shares a call if others are under way.
func (l *Batcher[Q, A]) do(ctx context.Context, ask Q, share bool) (none A, _ error) {
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnavailable, l.What, l.Key, errs.Cut(errs.Ended(ctx)))
	}
	mine := &Request[Q, A]{Ctx: ctx, Ask: ask}
	if l.Options.MaxBatch < 0 || !share {
		l.Run(ctx, []*Request[Q, A]{mine})
		return mine.Answer, mine.Err
	}
	l.mu.Lock()
	if l.calls == 0 {
		l.calls++
		l.mu.Unlock()
		return l.alone(ctx, mine)
	}
	b, end := l.join(ctx, mine)
	l.mu.Unlock()

	var gaveUp error
	if left := ctx.Done(); left == nil {
		<-end
	} else {
		select {
		case <-end:
		case <-left:
			gaveUp = errs.Cut(errs.Ended(ctx))
		}
	}
	switch {
	case gaveUp != nil:
	case end == b.ended && b.expired:
		gaveUp = l.ErrTimeout
	default:
		return mine.Answer, mine.Err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.answered:
		// the answer came first: to drop it now would lose a unit (TestClaimAny_CallerLeavesItsBatch_LosesNoUnit of stock)
		return mine.Answer, mine.Err
	case b.sent:
		mine.left = true // seen when the call is answered
		if b.waiting--; b.waiting == 0 {
			b.cancel() // no caller is left
		}
		if !l.Reads {
			return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnknownOutcome, l.What, l.Key, gaveUp)
		}
	}
	mine.left = true
	return none, fmt.Errorf("%w: %s on %q: %w", errs.ErrUnavailable, l.What, l.Key, gaveUp)
}

// alone sends one request on the caller's goroutine.
func (l *Batcher[Q, A]) alone(ctx context.Context, mine *Request[Q, A]) (A, error) {
	defer func() {
		if b := l.next(); b != nil {
			l.Spawn(func() { l.work(b) })
		}
	}()
	l.run(ctx, []*Request[Q, A]{mine})
	return mine.Answer, mine.Err
}

// aloneFor is how many requests are sent alone when sharing has not paid.
const aloneFor = 256

// carried learns how many requests calls carry. Two calls that end at once may lose one of the notes.
func (l *Batcher[Q, A]) carried(n int64) {
	mean := cmp.Or(l.mean.Load(), l.MinInFlight<<8)
	if mean += (n<<8 - mean) / 4; mean < l.Pays<<8 {
		l.lone.Store(aloneFor)
		mean = 0
	}
	l.mean.Store(mean)
}

// run makes a call, and learns how long one takes: a quicker one counts at once, a slower one little, because it may
// have waited for the processor.
func (l *Batcher[Q, A]) run(ctx context.Context, requests []*Request[Q, A]) {
	if l.Pays > 0 {
		l.carried(int64(len(requests)))
	}
	if l.Near == 0 {
		l.Run(ctx, requests)
		return
	}
	began := time.Now()
	l.Run(ctx, requests)
	d, t := int64(time.Since(began)), l.trip.Load()
	if t > 0 && d > t {
		d = t + (d-t)/128
	}
	l.trip.Store(d)
}

// work makes the call of b, and then those of the batches that take its place: a goroutine for each would grow its
// stack each time.
func (l *Batcher[Q, A]) work(b *batch[Q, A]) {
	for b != nil {
		l.send(b)
		b = l.next()
	}
}

// join puts a request into the open batch. end is closed when it is answered, or Bound is over, unless the context ends
// before. Called with mu held.
func (l *Batcher[Q, A]) join(ctx context.Context, mine *Request[Q, A]) (b *batch[Q, A], end <-chan struct{}) {
	b = l.open
	if b == nil {
		b = &batch[Q, A]{done: make(chan struct{}), requests: make([]*Request[Q, A], 0, min(16, l.Options.MaxBatch))}
		l.open = b
		if l.calls < l.most() && l.Options.MaxBatch > 1 {
			window := l.Options.Window
			if l.Window != nil {
				window = l.Window()
			}
			b.timer = time.AfterFunc(window, func() { l.waited(b) })
		}
	}
	b.requests = append(b.requests, mine)
	until, ok := ctx.Deadline()
	ok = ok && time.Until(until) < l.Bound
	switch {
	case ok:
		end = b.done
	case b.ended == nil: // the first whose context lasts: the patience of those that come later ends with its own
		b.bound = time.Now().Add(l.Bound)
		b.ended, b.clock = make(chan struct{}), time.AfterFunc(l.Bound, func() { l.expire(b) })
		fallthrough
	default:
		end = b.ended
	}
	if !ok {
		until = b.bound
	}
	mine.Until = until
	if until.After(b.until) {
		b.until = until
	}
	if len(b.requests) == l.Options.MaxBatch ||
		l.SplitInHalf && int64(2*len(b.requests)) >= l.inFlight.Load() && l.calls < l.most() {
		l.close()
		if l.calls < l.most() {
			l.calls++
			l.Spawn(func() { l.work(b) })
		} else {
			l.ready = append(l.ready, b)
		}
	}
	return b, end
}

// expire ends the patience of those callers of b whose contexts last, unless it is answered.
func (l *Batcher[Q, A]) expire(b *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !b.answered {
		b.expired = true
		close(b.ended)
	}
}

// most is how many calls may be under way. Called with mu held.
func (l *Batcher[Q, A]) most() int {
	switch {
	case l.Calls != nil:
		return min(l.Calls(), l.Options.MaxCalls)
	case l.Near > 0:
		return min(2+int(l.trip.Load()/int64(l.Near)), l.Options.MaxCalls)
	}
	return l.Options.MaxCalls
}

// close closes the open batch to more requests. Called with mu held.
func (l *Batcher[Q, A]) close() {
	if l.open.timer != nil {
		l.open.timer.Stop()
	}
	l.open = nil
}

// waited is the end of b's window.
func (l *Batcher[Q, A]) waited(b *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == b && l.calls < l.most() {
		l.close()
		l.calls++
		l.Spawn(func() { l.work(b) })
	}
}

// next ends a call, and returns the batch that takes its place; nil if there is none.
func (l *Batcher[Q, A]) next() (b *batch[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.ready) > 0:
		b, l.ready = l.ready[0], l.ready[1:]
	case l.open != nil:
		b = l.open
		l.close()
	default:
		l.calls--
	}
	return b
}

// send makes the call of b.
func (l *Batcher[Q, A]) send(b *batch[Q, A]) {
	l.mu.Lock()
	wanted := make([]*Request[Q, A], 0, len(b.requests))
	for _, r := range b.requests {
		if !r.left { // a caller that left before this moment got the error that nothing was sent
			wanted = append(wanted, r)
		}
	}
	b.sent, b.waiting = true, len(wanted)
	ctx := context.Context(context.Background())
	if len(wanted) > 0 {
		ctx = context.WithoutCancel(wanted[0].Ctx) // one call has one parent: the first request's
	}
	ctx, b.cancel = context.WithDeadline(ctx, b.until)
	defer b.cancel()
	l.mu.Unlock()
	if len(wanted) > 0 {
		l.Tally.calls.Add(1)
		l.Tally.requests.Add(int64(len(wanted)))
		l.run(ctx, wanted)
	}

	l.mu.Lock()
	b.answered = true
	var abandoned []*Request[Q, A]
	if l.Abandoned != nil {
		for _, r := range wanted {
			if r.left && r.Err == nil {
				abandoned = append(abandoned, r)
			}
		}
	}
	if b.ended != nil && !b.expired {
		close(b.ended)
		b.clock.Stop()
	}
	l.mu.Unlock()
	close(b.done)
	if abandoned != nil {
		l.Abandoned(abandoned)
	}
}
