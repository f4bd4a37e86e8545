// Package wait is the one place where anything waits for somebody else's lock, permit or latch.
//
// # The loop
//
// Try; subscribe and have it confirmed; try again; then sleep until a message, a nudge from inside the process, the
// end of the holder's lease, or PollCap, whichever is first; and so on until granted or out of time.
//
//	waiter                         holder
//	try: held
//	                               release, publish        (nobody hears)
//	subscribe, confirmed
//	try: granted                                           without this try: asleep on a free lock
//
// Messages are hints. One that is lost costs at most PollCap; one too many costs a try. Each waiter's place in the
// process is a semaphore: of all that wait for a name, one contends on the server, the others stand behind it, first
// come first served.
//
// # Where a grant arrives
//
// Nudge wakes the contender of a name, which then calls Try. A Try that finds a grant left for its owner in this
// process returns it without asking the server; so a hand-over needs no second way to wake a waiter.
package wait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Queue is the waiting room of one client.
type Queue struct {
	hub     *pubsub.Hub
	pollCap time.Duration
	woken   func(name string, byMessage bool)
	ctx     context.Context // ends when the client closes, with cause errs.ErrClosed
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	lines  map[string]*line
	denied time.Time // no new SUBSCRIBE before this: the server refused one
}

// line is the waiters of one name; it exists only while there are any.
type line struct {
	turn    *semaphore.Weighted
	members int
	nudge   chan struct{}
	pushed  bool      // the contender is subscribed: it hears of releases without a nudge
	freeBy  time.Time // when the holder's lease ends, as the contender last heard; zero if unknown
	failure error     // why the contender could not ask, when it last tried; nil if it was answered
}

// NewQueue returns a queue. woken is told of every wake-up of a sleeping waiter; it may be nil.
func NewQueue(hub *pubsub.Hub, pollCap time.Duration, woken func(name string, byMessage bool)) *Queue {
	q := &Queue{hub: hub, pollCap: pollCap, woken: woken, lines: map[string]*line{}}
	if q.woken == nil {
		q.woken = func(string, bool) {}
	}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	return q
}

// Close ends all waiting with errs.ErrClosed.
func (q *Queue) Close() { q.cancel(errs.ErrClosed) }

// Request is one wait.
type Request struct {
	Name    string // whose waiters stand in one line
	Channel string // where releases are published
	// Alone: do not stand in the process's line. For what can never wait for another waiter: a re-entry behind one
	// would be a deadlock.
	Alone bool
	// Until bounds the waiting, zero: only ctx does. If it has passed after the first try, that was the only one.
	Until time.Time
	// Try asks once. ctx ends with the caller's patience, but Until does not cut the first try short.
	Try func(ctx context.Context) (Answer, error)
}

// Answer is what a try was told.
type Answer struct {
	Granted bool
	Left    time.Duration // until the holder's lease ends; negative if it has none or it is unknown
}

// GaveUp is the error of a wait that ended without a grant.
type GaveUp struct {
	Left    time.Duration // of the holder's lease when last heard of, negative if unknown
	Failure error         // why the server could not be asked when it was last tried; nil if it said "held"
	Cause   error         // the context's; nil if the time was up
}

func (g *GaveUp) Error() string {
	return fmt.Sprintf("gave up waiting (failure: %v, cause: %v)", g.Failure, g.Cause)
}

// Wait returns nil when a try was granted; *GaveUp when ctx, Until or the queue ended first; or the first error of Try
// that asking again cannot mend.
func (q *Queue) Wait(ctx context.Context, r Request) error {
	if err := q.ended(ctx); err != nil {
		return &GaveUp{Left: -1, Cause: err}
	}
	w := waiter{q: q, r: r, ctx: ctx, left: -1}
	defer w.leave()
	if !r.Alone {
		w.line = q.enter(r.Name)
		if !w.line.turn.TryAcquire(1) {
			if err := w.line.turn.Acquire(w.patience(), 1); err != nil {
				return w.gaveUp()
			}
		}
		w.head = true
	}
	return w.contend()
}

func (q *Queue) ended(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return errs.ErrClosed
	}
	if ctx.Err() != nil {
		return ctxError(ctx)
	}
	return nil
}

// ctxError keeps both ctx's error and its cause for errors.Is.
func ctxError(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// waiter is one call of Wait.
type waiter struct {
	q    *Queue
	r    Request
	ctx  context.Context // the caller's
	slow context.Context // ctx, Until and the queue's end together; made when first needed
	stop []func()
	line *line
	head bool
	sub  *pubsub.Subscription

	left    time.Duration
	failure error
	heard   bool // some try was answered
}

// patience is the context that ends when any reason to stop waiting does.
func (w *waiter) patience() context.Context {
	if w.slow == nil {
		ctx, cancel := context.WithCancelCause(w.ctx)
		unlink := context.AfterFunc(w.q.ctx, func() { cancel(errs.ErrClosed) })
		w.stop = append(w.stop, func() { unlink(); cancel(nil) })
		if !w.r.Until.IsZero() {
			var cancelTimer context.CancelFunc
			ctx, cancelTimer = context.WithDeadlineCause(ctx, w.r.Until, errTimeUp)
			w.stop = append(w.stop, cancelTimer)
		}
		w.slow = ctx
	}
	return w.slow
}

var errTimeUp = errors.New("waitTime is over")

func (w *waiter) gaveUp() error {
	g := &GaveUp{Left: w.left, Failure: w.failure, Cause: w.q.ended(w.ctx)}
	if w.line != nil {
		w.q.mu.Lock()
		if !w.line.freeBy.IsZero() {
			g.Left = max(0, time.Until(w.line.freeBy))
		}
		if !w.head { // never asked itself: what the contender knows is all there is to know
			g.Failure = w.line.failure
		}
		w.q.mu.Unlock()
	}
	return g
}

func (w *waiter) leave() {
	for _, stop := range w.stop {
		stop()
	}
	if w.sub != nil {
		w.sub.Close()
	}
	if w.line != nil {
		w.q.exit(w.r.Name, w.line, w.head)
	}
}

func (w *waiter) contend() error {
	// Subscribed before the first try, where that costs nothing, the try after the subscription is saved.
	w.attach(w.q.hub.TrySubscribe(w.r.Channel))
	failures := 0
	for n := 0; ; n++ {
		ctx := w.ctx
		if n > 0 {
			ctx = w.patience()
		}
		if w.sub != nil {
			w.sub.Drain()
		}
		answer, err := w.r.Try(ctx)
		switch {
		case err == nil && answer.Granted:
			return nil
		case err == nil:
			w.heard, failures = true, 0
			w.note(answer.Left, nil)
		case !script.Retryable(err):
			return err
		default:
			// a try that our own patience cut short says nothing about the server
			if ctx.Err() == nil || !w.heard {
				w.note(-1, err)
			}
			failures++
		}
		if w.q.ended(w.ctx) != nil || !w.r.Until.IsZero() && !time.Now().Before(w.r.Until) {
			return w.gaveUp()
		}
		switch {
		case failures > 0:
			if !script.Pause(w.patience(), min(script.Backoff(failures), w.q.pollCap)) {
				return w.gaveUp()
			}
		case w.sub == nil && w.subscribe():
			// try again at once: see the package comment
		default:
			if !w.sleep() {
				return w.gaveUp()
			}
		}
	}
}

func (w *waiter) attach(sub *pubsub.Subscription, ok bool) {
	if !ok {
		return
	}
	w.sub = sub
	if w.line != nil {
		w.q.mu.Lock()
		w.line.pushed = true
		w.q.mu.Unlock()
	}
}

// note keeps what the last try found, for those behind us too: the rest of the holder's lease, or why the server
// could not be asked.
func (w *waiter) note(left time.Duration, failure error) {
	w.failure = failure
	if failure == nil {
		w.left = left
	}
	if w.line == nil {
		return
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	w.line.failure = failure
	if failure == nil {
		w.line.freeBy = time.Time{}
		if left >= 0 {
			w.line.freeBy = time.Now().Add(left)
		}
	}
}

// deniedPause is how long a refused subscription is not asked for again, by any waiter of the client.
const deniedPause = 30 * time.Second

// subscribe reports whether a new subscription stands. If it cannot be had the waiter polls; that is no error.
func (w *waiter) subscribe() bool {
	q := w.q
	q.mu.Lock()
	denied := time.Now().Before(q.denied)
	q.mu.Unlock()
	if denied {
		return false
	}
	// a server that does not confirm must not keep us from polling
	ctx, cancel := context.WithTimeout(w.patience(), q.pollCap)
	defer cancel()
	sub, err := q.hub.Subscribe(ctx, w.r.Channel)
	if err != nil {
		if ctx.Err() == nil {
			q.mu.Lock()
			q.denied = time.Now().Add(deniedPause)
			q.mu.Unlock()
		}
		return false
	}
	w.attach(sub, true)
	return true
}

// sleep waits for a reason to try again; false: out of patience.
func (w *waiter) sleep() bool {
	d := w.q.pollCap
	if w.left >= 0 {
		// a little after the lease: the server counts in whole milliseconds, and all waiters of all processes know
		// the same instant
		d = min(d, w.left+time.Millisecond+rand.N(time.Millisecond+w.left/50))
	}
	d -= rand.N(d/10 + 1)
	if w.left >= 0 && w.left < d {
		d = w.left + time.Millisecond
	}
	t := time.NewTimer(d)
	defer t.Stop()
	var pushed <-chan struct{}
	if w.sub != nil {
		pushed = w.sub.Ready()
	}
	var nudged <-chan struct{}
	if w.line != nil {
		nudged = w.line.nudge
	}
	select {
	case <-t.C:
		w.q.woken(w.r.Name, false)
	case <-pushed:
		w.q.woken(w.r.Name, true)
	case <-nudged:
		w.q.woken(w.r.Name, true)
	case <-w.patience().Done():
		return false
	}
	return true
}

func (q *Queue) enter(name string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[name]
	if l == nil {
		l = &line{turn: semaphore.NewWeighted(1), nudge: make(chan struct{}, 1)}
		q.lines[name] = l
	}
	l.members++
	return l
}

func (q *Queue) exit(name string, l *line, head bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if head {
		l.pushed = false
		l.turn.Release(1)
	}
	if l.members--; l.members == 0 {
		delete(q.lines, name)
	}
}

// Nudge wakes the waiter of this process that contends for name, if it is not subscribed to releases anyway: the
// process has just released name, or has something for that waiter.
func (q *Queue) Nudge(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[name]; l != nil && !l.pushed {
		select {
		case l.nudge <- struct{}{}:
		default:
		}
	}
}

// Members is how many requests stand in the line of name, the contender included.
func (q *Queue) Members(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[name]; l != nil {
		return l.members
	}
	return 0
}

// Lines is how many names are waited for.
func (q *Queue) Lines() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines)
}
