package ratelimit

import (
	"context"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the limiters of a client, for metrics. It runs on the goroutine where that happens, so it must
// return at once. It may call the client. A panic in it is logged and otherwise ignored. It must be safe for concurrent use.
//
// ctx has the values of the caller's context, and may have ended.
type Observer func(ctx context.Context, e Event)

// Event is something that happened to a limiter. Its Kind says which fields are set, beside Name.
type Event struct {
	Kind EventKind
	// Name is the limiter's, as the caller gave it.
	Name string
	// Err is what failed; never nil. Of EventBackgroundFailed.
	Err error
}

// EventKind is what an Event tells of.
type EventKind uint8

// EventBackgroundFailed: units that were taken for a call whose caller has left could not be given back, and that is not tried again: too
// few units pass (Err).
const EventBackgroundFailed EventKind = 1

var eventNames = [...]string{EventBackgroundFailed: "background failed"}

// String is the kind in words: "background failed".
func (k EventKind) String() string { return session.KindName(eventNames[:], k) }

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told. Either may be nil.
func (o Observer) And(next Observer) Observer { return session.Both(o, next) }
