package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions that are told what happens, each with a context and the stock's name. A nil function is
// skipped and costs nothing. A function runs on the goroutine where the event happens, which may be that of a claim: it must
// return at once. If it panics, that is logged and changes nothing else.
//
// The context is that of the call: it carries the caller's span, and may have ended. BackgroundFailed gets the values of the
// context of the call that left the work behind.
type Observer struct {
	// Claimed: the server answered a Claim, ClaimOnce, ClaimAny or Reserve, with n units if it was won; or there is no answer, for the reason in err.
	Claimed func(ctx context.Context, name string, outcome Outcome, n int64, took time.Duration, err error)
	// AnsweredLocally: the process answered one of these by itself, because the stock is sold out. Claimed is not told of
	// it.
	AnsweredLocally func(ctx context.Context, name string, outcome Outcome)
	// BackgroundFailed: work in the background failed and is not tried again: the return of units whose callers had left.
	// These units stay sold. KeepReaped and KeepLedger tell of every failure
	// after which they go on.
	BackgroundFailed func(ctx context.Context, name string, err error)
}

// guarded returns o with its functions' panics caught. Only Claimed may still be nil, and then no clock is read for it.
func (o Observer) guarded(s *session.Session) Observer {
	if o.Claimed != nil {
		o.Claimed = session.Guard4(s, o.Claimed)
	}
	o.AnsweredLocally, o.BackgroundFailed = session.Guard1(s, o.AnsweredLocally), session.Guard1(s, o.BackgroundFailed)
	return o
}

// began is when a claim began, for claimed; zero if no observer asks for it.
func (c *Client) began() (t time.Time) {
	if c.observer.Claimed != nil {
		t = time.Now()
	}
	return t
}

// claimed tells of a claim that the server was asked for.
func (c *Client) claimed(ctx context.Context, name string, began time.Time, g Grant, err error) {
	if f := c.observer.Claimed; f != nil {
		f(ctx, name, g.Outcome, g.N, time.Since(began), edged(err))
	}
}

// failed tells of work in the background that failed; what says what that means.
func (c *Client) failed(ctx context.Context, what, name string, err error) {
	c.observer.BackgroundFailed(ctx, name, edged(err))
	c.calls.Complain(what, name, err)
}

// bears tells of a failure of work that is repeated anyway. It logs the first of several in a row.
func (c *Client) bears(ctx context.Context, what, name string, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = false
		return
	}
	c.observer.BackgroundFailed(ctx, name, edged(err))
	if !*failing {
		*failing = true
		c.calls.Complain(what, name, err)
	}
}

// The kinds of complaints.
const (
	notReturned = "units of a claim given up on could not be returned, and stay sold"
	notReaped   = "reservations could not be reaped; it goes on"
	notMoved    = "a ledger could not be moved; it goes on"
)

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	return Observer{
		Claimed:          session.Both4(o.Claimed, next.Claimed),
		AnsweredLocally:  session.Both1(o.AnsweredLocally, next.AnsweredLocally),
		BackgroundFailed: session.Both1(o.BackgroundFailed, next.BackgroundFailed),
	}
}
