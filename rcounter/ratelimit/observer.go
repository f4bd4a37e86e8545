package ratelimit

import (
	"context"
	"time"
)

// Observer is called with what happens to the limiters of a client, for metrics. It runs on the goroutine where that
// happens, so it must return at once. It may call the client. A panic in it is logged and otherwise ignored. It must be
// safe for concurrent use.
//
// ctx has the values of the caller's context, and may have ended.
type Observer func(ctx context.Context, e Event)

// Event is something that happened to a limiter. Its Kind says which fields are set, besides Name.
type Event struct {
	Kind EventKind
	// Name is the limiter's, as the caller gave it.
	Name string
	// Allowed is that of the Admission. Of EventAdmitted.
	Allowed bool
	// Took is how long the answer took. Of EventAdmitted.
	Took time.Duration
	// Policy is what answers in place of the server, or did. Of EventDegraded.
	Policy Policy
	// Err is why there is no answer, or what failed. Of EventAdmitted, of EventDegraded, where nil says that the server
	// answers again, and of EventBackgroundFailed, where it is never nil.
	Err error
}

// EventKind is the kind of an Event, in words.
type EventKind string

const (
	// EventBackgroundFailed: units that were taken for a call whose caller has left could not be given back, and that is
	// not tried again: too few units pass (Err).
	EventBackgroundFailed EventKind = "background failed"
	// EventAdmitted: an Allow, AllowAtMost or AllowAll was answered, by the server, by this process or by a policy, or was
	// not (Allowed, Took, Err). Of an AllowAll there is one event for each limit. What is refused before anything is sent
	// is not an event.
	EventAdmitted EventKind = "admitted"
	// EventDegraded: the server does not answer, and from now on LimiterOptions.WhenDown does in its place; or it answers
	// again, and Err is nil (Policy, Err). There is one for the first request and one for the last, not for each.
	EventDegraded EventKind = "degraded"
)
