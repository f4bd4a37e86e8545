package script

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// inPlace makes the call on the caller's goroutine.
func (r *Runner) inPlace(ctx context.Context, c Call, limit time.Time) (rueidis.RedisMessage, error) {
	x := &placeContext{parent: ctx, until: limit, alarms: r.alarms}
	res, _ := r.exec(x, c)
	x.done()
	m, err := res.ToMessage()
	switch {
	case err == nil:
		r.answered()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if why := errs.Ended(ctx); why != nil {
			return m, errInFlight{why}
		}
		return m, errInFlight{errCallTimeout}
	case classify(err) == answered:
		r.answered()
	}
	return m, err
}

// placeContext is parent with a deadline, for one call in place. It has a channel only if it is asked for one: rueidis asks when
// the call joins others on a pipelining connection, and sets the deadline on the connection itself otherwise. Under a parent that
// cannot end the channel is that of many calls, a deadline. Otherwise channel and timer, an alarm, are lent by a pool, and go back
// unless they went off. The context itself is made anew for each call: a hook around the client may keep it, for its values, for
// longer than the call.
type placeContext struct {
	parent context.Context
	until  time.Time
	alarms *alarms

	mu    sync.Mutex
	alarm *alarm
	with  *deadline
	over  bool // the call has ended
}

// alarms are those of one runner: a timer or channel that is made inside a synctest bubble may not leave it.
type alarms struct {
	pool  sync.Pool
	grain time.Duration            // how much too early a deadline may come
	last  atomic.Pointer[deadline] // the newest
}

func newAlarms(callTimeout time.Duration) *alarms {
	return &alarms{pool: sync.Pool{New: func() any { return newAlarm() }}, grain: callTimeout / 64}
}

// deadline is a channel that is closed at a time, for the calls of a whole grain: a timer for each would cost a tenth of a
// call.
type deadline struct {
	at     time.Time
	passed chan struct{}
}

// deadline returns one that comes at t, or up to a grain before it.
func (p *alarms) deadline(t time.Time) *deadline {
	if d := p.last.Load(); d != nil && !t.Before(d.at) && t.Sub(d.at) <= p.grain {
		return d
	}
	d := &deadline{t, make(chan struct{})}
	time.AfterFunc(time.Until(t), func() { close(d.passed) })
	p.last.Store(d) // of two that are made at once, one serves the call for which it was made
	return d
}

// Within returns ctx with the deadline until, for one call in place whose reply is expected at once; it costs no timer then. done
// must be called afterwards.
func (r *Runner) Within(ctx context.Context, until time.Time) (place context.Context, done func()) {
	x := &placeContext{parent: ctx, until: until, alarms: r.alarms}
	return x, x.done
}

// done ends the call: nothing listens to the channel any more.
func (x *placeContext) done() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	if a := x.alarm; a != nil && a.disarm() {
		x.alarm = nil
		x.alarms.pool.Put(a)
	}
}

func (x *placeContext) Deadline() (time.Time, bool) { return x.until, true }
func (x *placeContext) Value(key any) any           { return x.parent.Value(key) }

func (x *placeContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.alarm != nil:
	case x.with != nil:
		return x.with.passed
	case x.over: // the call's alarm may serve another by now
		return x.parent.Done()
	case x.parent.Done() == nil:
		x.with = x.alarms.deadline(x.until)
		return x.with.passed
	default:
		x.alarm = x.alarms.pool.Get().(*alarm)
		x.alarm.arm(x.parent, time.Until(x.until))
	}
	return x.alarm.rang
}

func (x *placeContext) Err() error {
	x.mu.Lock()
	a, with := x.alarm, x.with
	x.mu.Unlock()
	if with != nil {
		select {
		case <-with.passed:
			return context.DeadlineExceeded
		default:
			return nil
		}
	}
	if a != nil {
		// Not before the channel is closed: whoever sees an error takes the channel for closed.
		if why := a.why.Load(); why != nil {
			<-a.rang
			return *why
		}
		return nil
	}
	if err := x.parent.Err(); err != nil {
		return err
	}
	if !time.Now().Before(x.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// alarm closes its channel when a time is over or a context ends. It serves one call after the other until it goes off.
type alarm struct {
	rang  chan struct{}
	why   atomic.Pointer[error]
	timer *time.Timer
	deaf  func() bool // ends the listening to the parent; nil: it cannot end
	// One function for all calls: the parent is that of the call, and is left in place until the next.
	parent context.Context
	heard  func()
}

// newAlarm returns an alarm that is not armed.
func newAlarm() *alarm {
	a := &alarm{rang: make(chan struct{})}
	a.heard = func() { a.ring(a.parent.Err()) }
	return a
}

func (a *alarm) arm(parent context.Context, d time.Duration) {
	a.parent = parent
	if a.timer == nil {
		a.timer = time.AfterFunc(d, func() { a.ring(context.DeadlineExceeded) })
	} else {
		a.timer.Reset(d)
	}
	if parent.Done() != nil {
		a.deaf = context.AfterFunc(parent, a.heard)
	}
}

// disarm reports whether the alarm did not go off, nor is about to: it can serve another call.
func (a *alarm) disarm() bool {
	still := a.timer.Stop()
	if a.deaf != nil {
		still = a.deaf() && still
		a.deaf = nil
	}
	if still {
		a.parent = nil
	}
	return still
}

func (a *alarm) ring(why error) {
	if a.why.CompareAndSwap(nil, &why) {
		close(a.rang)
	}
}
