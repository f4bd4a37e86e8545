package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// began is when a claim began, for claimed; zero if there is no observer.
func (c *Client) began() (t time.Time) {
	if c.calls.Observer != nil {
		t = time.Now()
	}
	return t
}

// claimed tells of a claim that the server was asked for.
func (c *Client) claimed(ctx context.Context, name string, began time.Time, g Grant, err error) {
	if c.calls.Observer != nil {
		c.calls.Tell(ctx, errs.Event{Kind: errs.EventClaimed, Name: name, Outcome: string(g.Outcome), N: g.N,
			Took: time.Since(began), Err: edged(err)})
	}
}

// failed tells of work in the background that failed; what says what that means.
func (c *Client) failed(ctx context.Context, what, name string, err error) {
	c.calls.Tell(ctx, errs.Event{Kind: errs.EventBackgroundFailed, Name: name, Err: edged(err)})
	c.calls.Complain(what, name, err)
}

// bears tells of a failure of work that is repeated anyway. It logs the first of several in a row.
func (c *Client) bears(ctx context.Context, what, name string, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = false
		return
	}
	c.calls.Tell(ctx, errs.Event{Kind: errs.EventBackgroundFailed, Name: name, Err: edged(err)})
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
