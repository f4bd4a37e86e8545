package session

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/errs"
)

// failures are what the debug page says of events that have an error.
var failures = map[errs.EventKind]string{errs.EventNotAcquired: "acquire", errs.EventAwaited: "await",
	errs.EventReleased: "release", errs.EventRenewed: "renew", errs.EventEnded: "hold"}

// Tell reports an event to the Observer of the options, and returns the context under which the call goes on that the
// event begins; see errs.Tell. Without an Observer it costs nothing. The error of an acquisition, a wait, a release, a
// renewal or a hold becomes one of the RecentErrors.
func (s *Session) Tell(ctx context.Context, e errs.Event) context.Context {
	if e.Err != nil {
		s.note(e)
	}
	if s.Observer == nil {
		return ctx
	}
	e.Package = s.pkg
	return errs.Tell(ctx, s.Observer, e, s.Logger)
}

func (s *Session) note(e errs.Event) {
	// a renewal that finds the hold lost is followed by EventEnded
	if e.Kind == errs.EventRenewed && errors.Is(e.Err, errs.ErrLost) {
		return
	}
	if what, ok := failures[e.Kind]; ok {
		s.recent.Add(what, e.Name, e.Err)
	}
}
