package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Runner runs scripts over one client.
type Runner struct {
	client  rueidis.Client
	cluster bool // client is one of a Cluster
	timeout time.Duration
	late    error // of a call that got no reply within timeout

	base    time.Time
	replies []lastReply // one, or in a Cluster one for each span of slots: a node may be silent while others reply
	dials   *errs.Dials
	timers  sync.Pool // of each runner: a timer that is made inside a synctest bubble may not leave it

	Clock *Clock
	Lacks *errs.Lacks // of the server: its own, which are not logged, unless they are set before the first call
	Solo  *Solo       // the connection of solo calls, set before the first call; nil: none

	evictionAsked atomic.Bool
}

// NewRunner returns a runner whose single attempts last at most callTimeout.
func NewRunner(client rueidis.Client, callTimeout time.Duration) *Runner {
	runner := &Runner{
		client: client, cluster: client.Mode() == rueidis.ClientModeCluster, timeout: callTimeout, late: errCallTimeout,
		base: time.Now(), replies: make([]lastReply, spans(client)), dials: new(errs.Dials),
		timers: sync.Pool{New: func() any {
			timer := time.NewTimer(time.Hour)
			timer.Stop()
			return timer
		}},
		Lacks: errs.NewLacks(slog.New(slog.DiscardHandler)),
	}
	runner.Clock = newClock(runner.Apart)
	return runner
}

// Late sets the error of a call without a reply in time, where the time is not that of Options.CallTimeout.
func (r *Runner) Late(err error) { r.late = err }

// HeedDials gives the runner the count of the connections that the client makes, before the first call. Without it a
// connection that is lost and cannot be made anew may keep calls for rueidis' Dialer.Timeout that were made within
// freshFor of the last reply.
func (r *Runner) HeedDials(dials *errs.Dials) { r.dials = dials }

// Dials is how many connections the client has begun to make. If the number has grown, an earlier reply says nothing
// of the present connection.
func (r *Runner) Dials() int64 { return r.dials.Begun() }

// Attempt sends the call once and waits for its reply until ctx ends, and for no longer than the call timeout unless it
// is Patient, whatever rueidis and the server do.
//
// In general the call gets a goroutine of its own (see inFlight). The two switches of goroutines cost more than all
// else that is added to a call. A server that replied a moment ago has no full ring, so then the call is made in place
// if ctx leaves it nearly its whole call timeout.
func (r *Runner) Attempt(ctx context.Context, call Call) (reply rueidis.RedisMessage, err error) {
	start := call.start
	if start == 0 {
		start = r.elapsed()
	}
	call.byText = call.byText || r.Lacks.Has(errs.LackEvalsha)
	last, dials := r.lastReply(call.Keys[0]), r.dials.Begun()
	limit := r.base.Add(start + r.timeout)
	switch {
	case ctx.Err() != nil:
		err = gaveUp{r.explained(call, errs.Cut(errs.Ended(ctx))), false}
	case call.fitsInPlace() && last.isFresh(start, dials) && r.leavesTime(ctx, limit):
		reply, err = r.inPlace(ctx, call, limit)
	default:
		reply, err = r.inFlight(ctx, call)
	}
	if err == nil {
		last.record(r.elapsed(), dials)
		return reply, nil
	}
	if classify(err) == answered {
		last.record(r.elapsed(), dials)
	}
	if err = r.refusedSlots(call.Keys, err, wrap(call, err)); call.Once {
		err = errs.Once(err)
	}
	return reply, err
}

// inPlace makes the call on the caller's goroutine. Hooks around the client see the call's context, and may derive
// contexts that outlast the call. So each call has a context of its own, which ends with the call
// (TestInPlace_HookDerivesContexts_TheyEndWithTheCall).
func (r *Runner) inPlace(ctx context.Context, call Call, limit time.Time) (rueidis.RedisMessage, error) {
	r.Solo.enter()
	call.solo = !call.Once && !call.byText && r.Solo.take() // only a script by its hash goes there
	bounded := NewLazyDeadline(ctx, limit)
	result := r.client.Do(bounded, call.command(r.client.B())) //nolint:contextcheck // it is ctx, with an end
	if result.Error() != nil {
		result, _ = r.sendText(bounded, call, result) //nolint:contextcheck // as above
	}
	bounded.End()
	if call.solo {
		r.Solo.giveBack(result.NonRedisError() == nil)
	}
	r.Solo.leave()
	reply, err := result.ToMessage()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
			<-ctx.Done() // now: the deadline of the connection may pass a moment earlier
		}
		if err = errs.Cut(errs.Ended(ctx)); err == nil {
			err = r.late
		}
		err = gaveUp{err, true}
	}
	return reply, err
}

// elapsed returns the monotonic time since base. Reading the clock costs as much as the rest of a call that is made in
// place, so it is read twice for a call.
func (r *Runner) elapsed() time.Duration { return time.Since(r.base) }

// leavesTime reports whether ctx leaves the call nearly as much time as limit does. A much nearer deadline would be set
// on the connection itself, and break it for everybody when it passes. A cancellation during the call may go unnoticed
// until limit, if the server falls silent in that very call and the connection is not pipelining.
//
// A shared call ends with the patience of its callers, who came a moment before the call begins. Each of these calls
// would take a flight if ctx had to leave it the whole call timeout.
func (r *Runner) leavesTime(ctx context.Context, limit time.Time) bool {
	deadline, bounded := ctx.Deadline()
	return !bounded || !deadline.Before(limit.Add(-r.timeout/8))
}

// inFlight makes the call on a goroutine of its own, and waits for it.
//
// rueidis does not heed the caller's ctx everywhere. While its ring is full (its issue 858) it ignores ctx, and on a
// connection that is not pipelining it looks at the deadline and never at cancellation. The caller would wait too long.
// rueidis also drops a reply that comes late, so that a grant which arrives after the caller has left would never be
// released. So the flight gets a deadline far away, and the caller leaves when its own patience ends
// (TestAttempt_RingFull_LeavesInTime, TestAttempt_NotPipelining_ObeysCancellation).
func (r *Runner) inFlight(ctx context.Context, call Call) (rueidis.RedisMessage, error) {
	current := &flight{r: r, values: ctx, call: call, done: make(chan struct{})}
	r.Solo.enter()
	go current.run()
	timer := r.timers.Get().(*time.Timer)
	if !call.Patient {
		timer.Reset(r.timeout)
	}
	var why error
	select {
	case <-current.done:
	case <-ctx.Done():
		why = errs.Cut(errs.Ended(ctx))
	case <-timer.C:
		why = r.late
	}
	timer.Stop()
	r.timers.Put(timer)
	if why != nil {
		why = r.explained(call, why)
		if current.state.CompareAndSwap(boarding, abandoned) {
			r.Solo.leave()
			return rueidis.RedisMessage{}, gaveUp{why, false}
		}
		if current.state.CompareAndSwap(flying, abandoned) {
			return rueidis.RedisMessage{}, gaveUp{why, true}
		}
	}
	<-current.done
	reply, err := current.result.ToMessage()
	if err == nil {
		err = current.unmet
	}
	return reply, err
}

// explained adds to why the reason why no connection could be made. rueidis repeats a read by itself, without a word,
// for as long as it may.
func (r *Runner) explained(call Call, why error) error {
	if failure := r.dials.Failure(); failure != nil && call.repeats() {
		return fmt.Errorf("%w: %w", why, failure)
	}
	return why
}

var errCallTimeout = errors.New("no reply within the call timeout")

// gaveUp is the error of a call whose caller no longer waits for it: before the call was sent, or while it awaited the
// reply. It wraps the reason.
type gaveUp struct {
	error
	sent bool
}

func (e gaveUp) Unwrap() error { return e.error }

const (
	boarding int32 = iota // its goroutine has yet to run
	flying
	landed
	abandoned
)

// flight is one attempt on its own goroutine. If its caller has left by the time that goroutine runs, the call is not
// sent any more: otherwise it would run on the server after the request by which that caller takes it back, and on a
// busy machine many would (TestAttempt_SaysNotSent_IsNeverSent).
type flight struct {
	r      *Runner
	values context.Context
	call   Call
	state  atomic.Int32
	done   chan struct{}
	result rueidis.RedisResult
	unmet  error
}

// flightLimit ends a flight that rueidis itself does not end (its redirections in a Cluster are unbounded).
const flightLimit = 15 * time.Second

func (f *flight) run() {
	if !f.state.CompareAndSwap(boarding, flying) {
		return
	}
	// Without the caller's end, but with its values: a hook around the client finds its span there.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.values), flightLimit)
	result, unmet := f.r.send(ctx, f.call)
	cancel()
	f.r.Solo.leave()
	if f.state.CompareAndSwap(flying, landed) {
		f.result, f.unmet = result, unmet
		close(f.done)
	} else if f.call.Late != nil {
		f.call.Late(result)
	}
}

// lastReply is when a server last replied to a call, after the runner's base, and how many connections had been begun
// when that call was made.
type lastReply struct{ at, dials atomic.Int64 }

// record notes the reply at now to a call that was made when dials was so.
func (l *lastReply) record(now time.Duration, dials int64) {
	l.dials.Store(dials)
	l.at.Store(int64(now))
}

// freshFor is how long after a reply the server counts as replying. To fill rueidis' rings (4 x 1024 calls by default)
// within it, the program would have to send 160,000 calls a second into a server that has just stopped.
const freshFor = 25 * time.Millisecond

// isFresh reports whether the server replied a moment ago, over a connection that is there. While rueidis makes a
// connection, which takes it Dialer.Timeout, 5 s, if nothing answers there, all other callers wait for that whatever
// their contexts say:
//
//	a flight                         a call in place                 connection
//	                                                                 lost within freshFor of the last reply
//	makes another, for up to 5 s                                     silent
//	                                 waits for that, for 5 s
//
// So no call is made in place from the moment on in which a connection is begun, until a later call is answered
// (TestInPlace_AnotherCallDials_DoesNotWait). The call that makes it in place is bounded by its own context.
func (l *lastReply) isFresh(now time.Duration, dials int64) bool {
	at := l.at.Load()
	return at != 0 && now-time.Duration(at) < freshFor && dials == l.dials.Load()
}

// slotsOfSpan is how many slots of a Cluster count as one server. Nodes have long ranges of slots.
const slotsOfSpan = 64

func spans(client rueidis.Client) int {
	if client.Mode() == rueidis.ClientModeCluster {
		return keyname.Slots / slotsOfSpan
	}
	return 1
}

func (r *Runner) lastReply(key string) *lastReply {
	if len(r.replies) == 1 {
		return &r.replies[0]
	}
	return &r.replies[keyname.Slot(key)/slotsOfSpan]
}
