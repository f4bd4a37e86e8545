package rsemaphore

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Observer is called with what happens to the objects of a client, for metrics and traces. It runs on the goroutine
// where that happens, which may be the watchdog's, so it must return at once. It may call the client. A panic in it is
// logged and otherwise ignored. It must be safe for concurrent use.
//
// ctx is that of the call: it carries the caller's span, and may have ended. EventRenewed and EventEnded happen outside
// any call: their context has the values of the acquisition's context, but not its end; that of EventTakenOver has
// neither.
//
// What an Observer returns matters for the events that begin a call, EventAcquiring and EventReleasing: it is the
// context under which the call goes on. The call's requests, and its later events, have its values. So a span that
// begins with EventAcquiring is the parent of the spans of the requests, and EventAcquired ends it. The context must be
// derived from ctx; nil, like ctx itself, changes nothing.
type Observer func(ctx context.Context, e Event) context.Context

// Event is something that happened to a semaphore, latch or barrier. Its Kind says which fields are set, besides Name.
type Event struct {
	Kind EventKind
	// Name is the object's, as the caller gave it.
	Name string
	// N is how many permits the call is about. Of EventAcquiring, EventAcquired, EventNotAcquired, EventReleasing,
	// EventReleased and EventTakenOver.
	N int
	// Waited is how long the call took. Of EventAcquired, EventNotAcquired and EventAwaited.
	Waited time.Duration
	// Held is how long the permits were held; negative for a counting.Semaphore, which knows no holders. Of EventReleased.
	Held time.Duration
	// Err is the call's error, or why a renewal failed or a permit ended. Of EventNotAcquired and EventEnded, where it is
	// never nil, and of EventAwaited, EventReleased and EventRenewed, where nil is success.
	Err error
	// ByMessage: a message woke the waiter, not its timer. Of EventWoken.
	ByMessage bool
	// Acquisition has the values of what the Observer returned when these very permits were acquired; of a
	// counting.Semaphore it has none. It may have ended. Of EventReleasing.
	Acquisition context.Context
}

// EventKind is the kind of an Event, in words.
type EventKind string

// The kinds of events.
const (
	// EventAcquiring: an acquisition of permits begins, and nothing was sent yet (N). One EventAcquired or
	// EventNotAcquired follows, with the context that the Observer returns.
	EventAcquiring EventKind = "acquiring"
	// EventWaiting: an acquisition or an Await begins to wait, because it was refused and may wait, or because another
	// call of the process is before it. At most once in each.
	EventWaiting EventKind = "waiting"
	// EventWoken: a sleeping waiter tries again (ByMessage).
	EventWoken EventKind = "woken"
	// EventAcquired: permits were acquired (N, Waited).
	EventAcquired EventKind = "acquired"
	// EventNotAcquired: an acquisition ended without the permits (N, Waited, Err).
	EventNotAcquired EventKind = "not acquired"
	// EventAwaited: an Await ended (Waited, Err). A nil Err: the latch opened or the barrier tripped.
	EventAwaited EventKind = "awaited"
	// EventReleasing: Release begins, and nothing was sent yet (N, Acquisition). One EventReleased follows, with the
	// context that the Observer returns. Later calls of Release have the result of the first, and are not events.
	EventReleasing EventKind = "releasing"
	// EventReleased: Release has ended (N, Held, Err).
	EventReleased EventKind = "released"
	// EventRenewed: the lease of a permit or of a barrier's party was renewed, or the renewal failed (Err). A failure is
	// not final: EventEnded says when a permit is lost, EventAwaited when a party is.
	EventRenewed EventKind = "renewed"
	// EventEnded: a permit ended without Release (Err: ErrLost, ErrMaxHold or ErrClosed).
	EventEnded EventKind = "ended"
	// EventTakenOver: this client has taken permits of crashed processes (Options.Liveness) for a semaphore that it waits
	// for (N). The first in line has them then, in whatever process.
	EventTakenOver EventKind = "taken over"
)

// failures are what the debug page calls what went wrong.
var failures = map[EventKind]string{EventNotAcquired: "acquire", EventAwaited: "await", EventReleased: "release",
	EventRenewed: "renew",
	EventEnded:   "permit"}

// observe tells of e, and returns the context under which goes on what e begins. Called without a mutex held.
func (c *Client) observe(ctx context.Context, e Event) context.Context {
	// a loss is reported when the permit ends
	if e.Err != nil && (e.Kind != EventRenewed || !errors.Is(e.Err, errs.ErrLost)) {
		c.session.RecentErrors().Add(failures[e.Kind], e.Name, e.Err)
	}
	return session.Follow(ctx, c.session, c.observer, e)
}
