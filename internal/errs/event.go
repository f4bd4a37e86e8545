package errs

import (
	"context"
	"log/slog"
	"time"
)

// Observer is called with what happens to the objects of a client. Package redlatch documents it.
type Observer func(ctx context.Context, e Event) context.Context

// And returns an observer that calls o and then next, with the context that o returned. Either may be nil. It is nil if
// both are.
func (o Observer) And(next Observer) Observer {
	switch {
	case o == nil:
		return next
	case next == nil:
		return o
	}
	return func(ctx context.Context, e Event) context.Context {
		if own := o(ctx, e); own != nil {
			ctx = own
		}
		if own := next(ctx, e); own != nil {
			ctx = own
		}
		return ctx
	}
}

// Tell calls an observer with an event, and returns the context that it returned. Without an observer, and if it
// returns nil or panics, that is ctx. A panic is logged. No mutex may be held, because an observer may call the client.
func Tell(ctx context.Context, o Observer, e Event, log *slog.Logger) (next context.Context) {
	if o == nil {
		return ctx
	}
	next = ctx // after a panic
	defer func() {
		if p := recover(); p != nil {
			log.Error("redlatch: observer panicked", "panic", p)
		}
	}()
	if own := o(ctx, e); own != nil {
		next = own
	}
	return next
}

// Event is something that happened to an object of a client. Kind says which of the fields after Name are set.
type Event struct {
	// Package is the package whose client reports the event: "rlock", "election", "rsemaphore", "rcounter", "stock",
	// "redpacket", "ratelimit" or "pubsub".
	Package string
	Kind    EventKind
	// Name is the object's, as the caller gave it. Of a hub it is the channel; of EventLost the address of the
	// connection's node in a Cluster, and "" elsewhere.
	Name string
	// N is how many permits, units or cents the event is about, or how many holds were taken over. It is 0 of locks
	// otherwise, and of counters.
	N int64
	// Outcome is the answer in words: a stock.Outcome, a redpacket.Outcome, or ratelimit.OutcomeAllowed or OutcomeRefused.
	// It is "" if Err is set. Of EventDegraded it is the ratelimit.Policy.
	Outcome string
	// Took is how long the call took.
	Took time.Duration
	// Held is how long a hold or permit was held; negative of a counting.Semaphore, which knows no holders.
	Held time.Duration
	// ByMessage: a message woke the waiter, not its timer.
	ByMessage bool
	// Again: the channel had been confirmed before, and was down meanwhile.
	Again bool
	// Err is the error of the call, or why a hold ended or work failed; nil is success.
	Err error
	// Acquisition has the values of the context that the Observer returned for the acquisition that is released now. That
	// context may have ended. Of a counting.Semaphore it has none.
	Acquisition context.Context
}

// EventKind is the kind of an Event, in words.
type EventKind string

// The kinds of events. Package redlatch documents them.
const (
	EventAcquiring        EventKind = "acquiring"
	EventWaiting          EventKind = "waiting"
	EventWoken            EventKind = "woken"
	EventAcquired         EventKind = "acquired"
	EventNotAcquired      EventKind = "not acquired"
	EventAwaited          EventKind = "awaited"
	EventReleasing        EventKind = "releasing"
	EventReleased         EventKind = "released"
	EventRenewed          EventKind = "renewed"
	EventEnded            EventKind = "ended"
	EventTakenOver        EventKind = "taken over"
	EventWritten          EventKind = "written"
	EventClaimed          EventKind = "claimed"
	EventAnsweredLocally  EventKind = "answered locally"
	EventAdmitted         EventKind = "admitted"
	EventDegraded         EventKind = "degraded"
	EventBackgroundFailed EventKind = "background failed"
	EventSubscribed       EventKind = "subscribed"
	EventRefused          EventKind = "refused"
	EventLost             EventKind = "lost"
	EventDropped          EventKind = "dropped"
)
