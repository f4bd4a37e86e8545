package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the stocks of a client, for metrics. It runs on the goroutine where that
// happens, which may be that of a claim, so it must return at once. It may call the client. A panic in it is logged and
// otherwise ignored. It must be safe for concurrent use.
//
// ctx is that of the call: it carries the caller's span, and may have ended. EventBackgroundFailed gets the values of
// the context of the call that left the work behind.
type Observer func(ctx context.Context, e Event)

// Event is something that happened to a stock. Its Kind says which fields are set besides Name.
type Event struct {
	Kind EventKind
	// Name is the stock's, as the caller gave it; that of a Group's begins with its tag.
	Name string
	// Outcome is the answer. Of EventClaimed, unless Err is set, and of EventAnsweredLocally.
	Outcome Outcome
	// N is how many units were won. Of EventClaimed.
	N int64
	// Took is how long the call took. Of EventClaimed.
	Took time.Duration
	// Err is why there is no answer, or what failed. Of EventClaimed, and of EventBackgroundFailed, where it is never nil.
	Err error
}

// EventKind is what an Event tells of.
type EventKind string

// The kinds of events.
const (
	// EventClaimed: the server answered a Claim, ClaimAny or Reserve, or there is no answer (Outcome, N, Took, Err).
	EventClaimed EventKind = "claimed"
	// EventAnsweredLocally: the process answered one of these by itself, because the stock is sold out (Outcome).
	// EventClaimed does not come then.
	EventAnsweredLocally EventKind = "answered locally"
	// EventBackgroundFailed: work in the background failed and is not tried again: the return of units whose callers had
	// left. These units stay sold (Err). KeepReaped and KeepLedger tell of every failure after which they go on.
	EventBackgroundFailed EventKind = "background failed"
)

// observe tells of e. Called without a mutex held.
func (c *Client) observe(ctx context.Context, e Event) { session.Tell(ctx, c.calls, c.observer, e) }

// began is when a claim began, for claimed; zero if there is no observer.
func (c *Client) began() (t time.Time) {
	if c.observer != nil {
		t = time.Now()
	}
	return t
}

// claimed tells of a claim that the server was asked for.
func (c *Client) claimed(ctx context.Context, name string, began time.Time, g Grant, err error) {
	if c.observer != nil {
		c.observe(ctx, Event{Kind: EventClaimed, Name: name, Outcome: g.Outcome, N: g.N, Took: time.Since(began),
			Err: edged(err)})
	}
}

// failed tells of work in the background that failed; what says what that means.
func (c *Client) failed(ctx context.Context, what, name string, err error) {
	c.observe(ctx, Event{Kind: EventBackgroundFailed, Name: name, Err: edged(err)})
	c.calls.Complain(what, name, err)
}

// bears tells of a failure of work that is repeated anyway. It logs the first of several in a row.
func (c *Client) bears(ctx context.Context, what, name string, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = false
		return
	}
	c.observe(ctx, Event{Kind: EventBackgroundFailed, Name: name, Err: edged(err)})
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
