package errs

import (
	"context"
	"log/slog"
	"time"
)

// Observer is called with the events of a client's objects. Package redlatch documents the calls.
type Observer func(ctx context.Context, e Event) context.Context

// And returns an observer that calls o and then next, with the context that o returned. Either may be nil; if both are
// nil, so is the result.
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

// Tell calls an observer with an event, and returns the observer's context. Tell returns ctx if the observer returns
// nil or panics. A panic is logged. The caller may hold no mutex, because an observer may call the client.
func Tell(ctx context.Context, o Observer, e Event, log *slog.Logger) (next context.Context) {
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

// Event is an event of a client's object. Kind says which of the fields after Name are set.
type Event struct {
	// Package is the package whose client reports the event: "rlock", "election", "rsemaphore", "rcounter", "stock",
	// "redpacket", "ratelimit" or "pubsub".
	Package string
	Kind    EventKind
	// Name is the object's name, as the caller gave it. For a hub, Name is the channel. For EventLost, Name is the address
	// of the connection's node in a Cluster, and "" elsewhere.
	Name string
	// N is how many permits, units or cents the event is about, how many holds were taken over, or how many requests share
	// a call. Other events of locks and events of counters have 0.
	N int64
	// Outcome is the answer in words: a stock.State, or why an order was Refused; "grabbed", or a redpacket.Share's Why;
	// "allowed", "refused" or "would refuse". Outcome is "" if Err is set. For EventDegraded, Outcome is the
	// ratelimit.Policy.
	Outcome string
	// Took is how long the call took.
	Took time.Duration
	// Held is how long a hold or permit was held; negative for a counting.Semaphore, which knows no holders.
	Held time.Duration
	// Waited: the acquisition waited for other holders or callers, and EventWaiting came before.
	Waited bool
	// ByMessage: a message woke the waiter, not its timer.
	ByMessage bool
	// Again: the channel had been confirmed before, and was down meanwhile; or the order was there before.
	Again bool
	// Err is the error of the call, or why a hold ended or work failed; nil is success.
	Err error
	// Acquisition has the values of the context that the Observer returned for the acquisition that is released now. The
	// context may have ended. For a counting.Semaphore the context has no values.
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
	EventShared           EventKind = "shared"
	EventAdmitted         EventKind = "admitted"
	EventSettled          EventKind = "settled"
	EventDegraded         EventKind = "degraded"
	EventBackgroundFailed EventKind = "background failed"
	EventSubscribed       EventKind = "subscribed"
	EventRefused          EventKind = "refused"
	EventLost             EventKind = "lost"
	EventDropped          EventKind = "dropped"
)
