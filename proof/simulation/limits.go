package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

const (
	allow    what = "allow"
	allowFew what = "allow-at-most"
	allowAll what = "allow-all"
	queue    what = "wait"
	turn     what = "reserve-turn"
	charge   what = "charge"
)

// limited is a unit every two milliseconds, or five at once after a pause; next to it is another, which is taken from
// in the same step.
var (
	limited = ratelimit.LimiterOptions{Rate: 500, Burst: 5, MaxWait: 50 * time.Millisecond}
	second  = ratelimit.LimiterOptions{Rate: 250, Burst: 3}
)

func limits() *kind {
	return &kind{
		name: "limit", crowds: true, only: true,
		make: func(*world, *object) {}, open: func(*world, *object) {}, act: actOnLimit, verdict: auditLimit,
		plan: func(r *rand.Rand, s *Step) {
			s.What, s.N = []what{allow, queue, queue, turn, allowFew, allowAll, charge, charge}[r.IntN(8)], 1+r.IntN(2)
			s.Wait = upTo(r, 10*time.Millisecond, 200*time.Millisecond)
		},
	}
}

func actOnLimit(w *world, o *object, c *client, s Step) {
	ctx, stop := w.during(s, s.Wait)
	defer stop()
	l := c.red.Limiters().Limiter(o.name, limited)
	e := o.calls.begin(s, s.What, "k", int64(s.N))
	var a ratelimit.Admission
	var err error
	switch s.What {
	case allow:
		a, err = l.Allow(ctx, "k", e.n)
	case allowFew:
		if a, err = l.AllowAtMost(ctx, "k", e.n); err == nil && a.Allowed {
			e.n = a.N
		}
	case allowAll:
		var d ratelimit.Decision
		d, err = c.red.Limiters().AllowAll(ctx, ratelimit.Take{Limiter: l, Key: "k", N: e.n},
			ratelimit.Take{Limiter: c.red.Limiters().Limiter(o.name+" second", second), Key: "k", N: 1})
		a.Allowed = d.Allowed
	case charge:
		a, err = useCharge(ctx, w, l, s, e)
	case queue:
		_, err = l.Wait(ctx, "k", e.n)
		a.Allowed = true
	case turn:
		a.Allowed, err = useTurn(ctx, w, l, s, e.n)
	}
	if err == nil && !a.Allowed {
		err = ratelimit.ErrLimited
	}
	w.answered(o, c, s, e, err, ratelimit.ErrLimited)
}

// useCharge charges two units more than are used, and settles sometimes late, and sometimes twice at once. Of a charge
// that is not settled the estimate is used.
func useCharge(ctx context.Context, w *world, l *ratelimit.Limiter, s Step, e *entry) (ratelimit.Admission, error) {
	estimate := e.n + 2
	c, a, err := l.Charge(ctx, "k", estimate)
	if err != nil || !a.Allowed {
		return a, err
	}
	used := e.n
	e.n = estimate
	if s.Number%4 == 0 {
		return a, nil
	}
	if s.Number%4 == 1 {
		time.Sleep(s.Wait / 2)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), calls)
	defer stop()
	settled := make(chan error, 2)
	for range cap(settled) {
		go func() { settled <- c.Settle(ctx, used) }()
	}
	for range cap(settled) {
		if err := <-settled; err != nil {
			w.note("a charge is not settled: %v", err)
			continue
		}
		e.n = used
	}
	return a, nil
}

// useTurn reserves units, and uses them when their turn comes, or gives them back.
func useTurn(ctx context.Context, w *world, l *ratelimit.Limiter, s Step, n int64) (used bool, err error) {
	r, err := l.Reserve(ctx, "k", n)
	if err != nil {
		return false, err
	}
	if s.Number%2 == 0 || r.Delay() > 20*time.Millisecond {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), calls)
		defer stop()
		if _, err := r.Cancel(ctx); err != nil {
			w.note("a turn is not given back: %v", err)
		}
		return false, nil
	}
	time.Sleep(r.Delay())
	return true, nil
}

// auditLimit: in no interval do more units pass than were promised; and callers that leave close no limiter.
func auditLimit(w *world, o *object) {
	setback := len(w.of(w.nodes[0])) > 0 // the server lost what it had counted, or its clock was stepped
	if !setback {
		auditPassed(w, o, limited, o.calls.all())
		auditPassed(w, o, second, slices.DeleteFunc(o.calls.all(), func(e *entry) bool { return e.what != allowAll }))
	}
	// Turns whose callers could not give them back, because something was wrong, are over after MaxWait.
	full := time.Duration(limited.Burst) * time.Second / time.Duration(limited.Rate)
	wait := full + 2*w.plan.Longest + time.Millisecond
	if !w.plan.calm() {
		wait += limited.MaxWait + calls
	}
	time.Sleep(wait)
	l := w.clients[0].red.Limiters().Limiter(o.name, limited)
	a, err := l.Allow(context.Background(), "k", limited.Burst)
	for range 20 { // a connection that was cut is noticed by a call, whose time is short
		if err == nil {
			break
		}
		time.Sleep(calls + full) // the one that was not answered may have taken all, until its call's time was over
		a, err = l.Allow(context.Background(), "k", limited.Burst)
	}
	if err != nil || !a.Allowed {
		w.violated("%s: everybody has left, and it is closed: %+v, %v", o.name, a, err)
	}
}

// auditPassed: whatever began and was answered within an interval passed in it, by the server's clock, which may run a
// little faster than ours.
func auditPassed(w *world, o *object, limit ratelimit.LimiterOptions, list []*entry) {
	var passed []judges.Passed
	for _, e := range list {
		p := judges.Passed{From: e.began.Sub(w.began), To: e.done.Sub(w.began), N: e.n}
		if limit == second {
			p.N = 1
		}
		if e.err == nil && !e.done.IsZero() {
			passed = append(passed, p)
		}
	}
	rate := judges.Rate{N: limit.Rate, Per: time.Second, Burst: limit.Burst}
	if says := rate.Exceeded(passed, .01); says != "" {
		w.violated("%s: %s", o.name, says)
	}
}
