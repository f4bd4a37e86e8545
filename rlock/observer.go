package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the locks of a client, for metrics and traces. It runs on the goroutine where
// that happens, which may be the watchdog's, so it must return at once. It may call the client. A panic in it is logged
// and otherwise ignored. It must be safe for concurrent use.
//
// ctx is that of the call in question: it has the caller's span, and may have ended. EventRenewed and EventEnded happen
// outside of any call; they get the values of the acquisition's context, without its end. EventTakenOver gets a context
// without values and without an end.
//
// What an Observer returns matters for the events that begin a call, EventAcquiring and EventReleasing: it is the
// context under which the call goes on. The call's requests, and its later events, have its values. So a span that
// begins with EventAcquiring is the parent of the spans of the requests, and EventAcquired ends it. The context must be
// derived from ctx; nil, like ctx itself, changes nothing. One hold has several acquisitions if it is re-entered, or if
// readers of a process share it: EventRenewed and EventEnded come once, with the values of the first.
type Observer func(ctx context.Context, e Event) context.Context

// Event is something that happened to a lock. Its Kind says which fields are set, besides Name.
type Event struct {
	Kind EventKind
	// Name is the lock's, as the caller gave it.
	Name string
	// Waited is how long the call took that acquired the lock, or did not. Of EventAcquired and EventNotAcquired.
	Waited time.Duration
	// Held is how long the hold lasted. Of EventReleased.
	Held time.Duration
	// Err is the call's error, or why a renewal failed or a hold ended. Of EventNotAcquired and EventEnded, where it is
	// never nil, and of EventReleased and EventRenewed, where nil is success.
	Err error
	// ByMessage: a message woke the waiter, not its timer. Of EventWoken.
	ByMessage bool
	// Holds is how many holds were removed. Of EventTakenOver.
	Holds int
	// Acquisition has the values of what the Observer returned when this very hold was acquired. It may have ended. Of
	// EventReleasing.
	Acquisition context.Context
}

// EventKind is the kind of an Event, in words.
type EventKind string

// The kinds of events.
const (
	// EventAcquiring: an acquisition begins, and nothing was sent yet. One EventAcquired or EventNotAcquired follows, with
	// the context that the Observer returns. The members of a Multi that one script acquires begin when that has ended;
	// each has a context of its own.
	EventAcquiring EventKind = "acquiring"
	// EventWaiting: an acquisition begins to wait, because it was refused and may wait, because this process holds the
	// lock, or because another call of the process is before it. At most once in an acquisition. Of a Quorum it has the
	// Quorum's name and the caller's context, as EventWoken has.
	EventWaiting EventKind = "waiting"
	// EventWoken: a sleeping waiter tries again (ByMessage).
	EventWoken EventKind = "woken"
	// EventAcquired: the lock was acquired (Waited).
	EventAcquired EventKind = "acquired"
	// EventNotAcquired: an acquisition ended without the lock (Waited, Err).
	EventNotAcquired EventKind = "not acquired"
	// EventReleasing: Unlock begins, and nothing was sent yet (Acquisition). One EventReleased follows, with the context
	// that the Observer returns. Later calls of Unlock have the result of the first, and are not events.
	EventReleasing EventKind = "releasing"
	// EventReleased: Unlock has ended (Held, Err).
	EventReleased EventKind = "released"
	// EventRenewed: a renewal was confirmed, or failed (Err). A failure is not final: EventEnded says when a hold is lost.
	EventRenewed EventKind = "renewed"
	// EventEnded: a hold ended without Unlock (Err: ErrLost, ErrMaxHold or ErrClosed).
	EventEnded EventKind = "ended"
	// EventTakenOver: this client has removed holds of crashed processes (Options.Liveness) from a lock that it waits for
	// (Holds). Another process may acquire the lock then.
	EventTakenOver EventKind = "taken over"
)

// failures are what the debug page calls what went wrong.
var failures = map[EventKind]string{EventNotAcquired: "acquire", EventReleased: "release", EventRenewed: "renew",
	EventEnded: "hold"}

// observe tells of e, and returns the context under which goes on what e begins. Called without a mutex held.
func (c *Client) observe(ctx context.Context, e Event) context.Context {
	// a loss is reported when the hold ends
	if e.Err != nil && (e.Kind != EventRenewed || !errors.Is(e.Err, errs.ErrLost)) {
		c.session.RecentErrors().Add(failures[e.Kind], e.Name, e.Err)
	}
	return session.Follow(ctx, c.session, c.observer, e)
}
