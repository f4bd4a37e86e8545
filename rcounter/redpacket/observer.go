package redpacket

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the packets of a client, for metrics. It runs on the goroutine of the call,
// so it must return at once. It may call the client. A panic in it is logged and otherwise ignored. It must be safe for
// concurrent use.
//
// ctx is that of the call: it carries the caller's span, and may have ended.
type Observer func(ctx context.Context, e Event)

// Event is one call: the server answered a Grab, or did not.
type Event struct {
	// Name is the packet's, as the caller gave it.
	Name string
	// Outcome is the server's answer. It is not set if Err is.
	Outcome Outcome
	// Cents is the user's share; 0 without one.
	Cents int64
	// Took is how long the call took.
	Took time.Duration
	// Err is why there is no answer.
	Err error
}

// claim is a Grab by do, and reports it. Without an observer no clock is read.
func (p *Packet) claim(ctx context.Context, do func() (Share, error)) (Share, error) {
	if p.c.observer == nil {
		return do()
	}
	began := time.Now()
	s, err := do()
	session.Tell(ctx, p.c.calls, p.c.observer,
		Event{Name: p.name, Outcome: s.Outcome, Cents: s.Cents, Took: time.Since(began), Err: edged(err)})
	return s, err
}
