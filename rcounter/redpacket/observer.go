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

// Event is something that happened to a packet. Its Kind says which fields are set, besides Name.
type Event struct {
	Kind EventKind
	// Name is the packet's, as the caller gave it.
	Name string
	// Outcome is the server's answer. Of EventClaimed, unless Err is set.
	Outcome Outcome
	// Cents is the user's share; 0 without one. Of EventClaimed.
	Cents int64
	// Took is how long the call took. Of EventClaimed.
	Took time.Duration
	// Err is why there is no answer. Of EventClaimed.
	Err error
}

// EventKind is the kind of an Event.
type EventKind uint8

// EventClaimed: the server answered a Grab, or did not (Outcome, Cents, Took, Err).
const EventClaimed EventKind = 1

var eventNames = [...]string{EventClaimed: "claimed"}

// String is the kind in words: "claimed".
func (k EventKind) String() string { return session.KindName(eventNames[:], k) }

// And returns an Observer that calls o and then next, for example one for metrics and one for traces. If o panics, next
// is not called. Either may be nil.
func (o Observer) And(next Observer) Observer { return session.Both(o, next) }

// claim is a Grab by do, and reports it. Without an observer no clock is read.
func (p *Packet) claim(ctx context.Context, do func() (Share, error)) (Share, error) {
	if p.c.observer == nil {
		return do()
	}
	began := time.Now()
	s, err := do()
	session.Tell(ctx, p.c.calls, p.c.observer,
		Event{Kind: EventClaimed, Name: p.name, Outcome: s.Outcome, Cents: s.Cents, Took: time.Since(began), Err: edged(err)})
	return s, err
}
