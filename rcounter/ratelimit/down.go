package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Policy is what a limiter answers while the server does not: it is down, cannot be reached, or too slow for
// Options.AllowTimeout. An answer that a policy gives has Admission.Down.
//
// The server is asked again every AllowTimeout: by one caller, who waits, while the others are answered at once. In a
// Cluster, where others of its nodes may answer, each caller asks.
type Policy string

const (
	// Fail returns the error: ErrUnavailable or ErrUnknownOutcome.
	Fail Policy = "Fail"
	// Closed lets nothing pass. RetryAfter is Options.AllowTimeout.
	Closed Policy = "Closed"
	// Open lets everything pass, without any limit.
	Open Policy = "Open"
	// Local lets pass what a token bucket of this process does at LimiterOptions.Share of the rate, whatever the Algorithm
	// is: Share * Burst units at once, and then Share * Rate in every Per. With a window Burst is its Rate, so up to twice
	// the share passes in one window. The bucket knows nothing of what passed before, so up to Share * Burst units more
	// pass in each process than the server would have let pass. All processes together pass as much as the sum of their
	// shares. A request of n units, more than Share * Burst, passes when nothing counts any more in this process; the
	// next waits for n / (Share * Rate / Per).
	Local Policy = "Local"
)

// outage is what a client knows of a server that does not answer.
type outage struct {
	pause time.Duration // between questions; 0: every caller asks, in a Cluster
	next  atomic.Int64  // ns after the client's base: until then no call asks; 0: the server answers
	names atomic.Int64  // limiters in the map

	mu       sync.Mutex
	limiters map[string]policed // answered by their policies
}

// policed is a limiter whose policy answers.
type policed struct {
	policy Policy
	last   time.Duration // after the client's base
}

// calm is for how long a limiter must not have been without an answer before it is one that is answered again: a slow
// server answers now and then, and of a Cluster some nodes do all the time.
const calm = time.Second

// asks reports whether the server is to be asked now.
func (o *outage) asks(now int64) bool {
	next := o.next.Load()
	return next == 0 || o.pause == 0 || now >= next && o.next.CompareAndSwap(next, now+int64(o.pause))
}

// decide is judge, reported to the observer for each limit.
func (c *Client) decide(ctx context.Context, r *request) (Decision, error) {
	if c.calls.Observer == nil { // without an observer no clock is read
		return c.judge(ctx, r)
	}
	began := time.Now()
	d, err := c.judge(ctx, r)
	edge(&err)
	for i, p := range r.parts {
		e := errs.Event{Kind: errs.EventAdmitted, Name: p.l.name, Took: time.Since(began), Err: err}
		if err == nil {
			e.N, e.Outcome = d.Each[i].N, "refused"
			switch {
			case d.Each[i].WouldRefuse:
				e.Outcome = "would refuse"
			case d.Each[i].Allowed:
				e.Outcome = "allowed"
			}
		}
		c.calls.Tell(ctx, e)
	}
	return d, err
}

// judge answers a request, by the server or as the strictest of its limiters' policies says.
func (c *Client) judge(ctx context.Context, r *request) (Decision, error) {
	if known, ok := c.refusals.find(r); ok {
		if ctx.Err() != nil {
			return Decision{},
				fmt.Errorf("%w: rate limit of %q: %w", errs.ErrUnavailable, r.parts[0].key, errs.Cut(errs.Ended(ctx)))
		}
		return r.decision([]reply{known}, nil), nil
	}
	strictest := slices.MaxFunc(r.parts, func(a, b part) int {
		return a.l.o.WhenDown.severity() - b.l.o.WhenDown.severity()
	}).l
	if r.silent == nil && strictest.o.WhenDown != Fail && !c.down.asks(c.calls.Now()) {
		c.note(ctx, strictest, errSilent)
		return c.insteadOf(errSilent, strictest.o.WhenDown, r), nil
	}
	sent := time.Now()
	var replies []reply
	err := r.silent
	if err == nil {
		replies, err = c.ask(ctx, r)
	}
	switch {
	case err == nil:
		c.note(ctx, strictest, nil)
		c.refusals.learn(r, replies, sent)
		return r.decision(replies, nil), nil
	case strictest.o.WhenDown == Fail, !script.NotAnswered(err), ctx.Err() != nil: // a caller that left knows nothing
		return Decision{}, err
	}
	c.down.next.Store(c.calls.Now() + int64(c.allowTimeout))
	c.note(ctx, strictest, err)
	return c.insteadOf(err, strictest.o.WhenDown, r), nil
}

var errSilent = fmt.Errorf("%w: the server did not answer a moment ago", errs.ErrUnavailable)

// note notes that the server answered a limiter's request, or by err why its policy does, and tells of a change.
func (c *Client) note(ctx context.Context, l *Limiter, err error) {
	if err == nil {
		if c.down.names.Load() == 0 {
			return
		}
		c.down.next.Store(0)
	}
	now := time.Duration(c.calls.Now())
	c.down.mu.Lock()
	was, known := c.down.limiters[l.name]
	changes := !known
	if err != nil {
		c.down.limiters[l.name] = policed{l.o.WhenDown, now}
	} else if changes = known && now-was.last >= calm; changes {
		delete(c.down.limiters, l.name)
	}
	c.down.names.Store(int64(len(c.down.limiters)))
	c.down.mu.Unlock()
	if !changes {
		return
	}
	edge(&err)
	if err != nil {
		c.calls.Logger.Warn("redlatch: the server does not answer; the WhenDown policy of a rate limiter decides",
			"name", l.name, "policy", string(l.o.WhenDown), "error", err)
	} else {
		c.calls.Logger.Info("redlatch: the server answers again; the WhenDown policy of a rate limiter no longer decides",
			"name", l.name, "policy", string(l.o.WhenDown))
	}
	c.calls.Tell(ctx, errs.Event{Kind: errs.EventDegraded, Name: l.name, Outcome: string(l.o.WhenDown), Err: err})
}

// severity orders the policies.
func (p Policy) severity() int { return slices.Index([]Policy{Open, Local, Closed, Fail}, p) }

// insteadOf is what a policy answers.
func (c *Client) insteadOf(err error, policy Policy, r *request) Decision {
	edge(&err)
	if policy == Local {
		return r.decision(c.local.take(r), err)
	}
	replies := make([]reply, len(r.parts))
	for i, p := range r.parts {
		replies[i] = reply{taken: tookNone, wait: c.allowTimeout}
		if policy == Open {
			replies[i] = reply{taken: p.n, free: p.t.burst}
		}
	}
	return r.decision(replies, err)
}
