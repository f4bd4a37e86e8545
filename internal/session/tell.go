package session

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/errs"
)

// errorLabels are the labels of events with an error on the debug page.
var errorLabels = map[errs.EventKind]string{errs.EventNotAcquired: "acquire", errs.EventAwaited: "await",
	errs.EventReleased: "release", errs.EventRenewed: "renew", errs.EventEnded: "hold"}

// Tell reports event to the Observer of the options, and returns the context for the rest of the call that the event
// begins; see errs.Tell. Without an Observer it costs nothing. The error of an acquisition, a wait, a release, a
// renewal or a hold becomes one of the RecentErrors.
func (s *Session) Tell(ctx context.Context, event errs.Event) context.Context {
	if event.Err != nil {
		s.recordError(event)
	}
	if s.Observer == nil {
		return ctx
	}
	event.Package = s.packageName
	return errs.Tell(ctx, s.Observer, event, s.Logger)
}

// TellShared returns the function that reports the shared calls for one name; "": for several names.
func (s *Session) TellShared(name string) func(ctx context.Context, requests int) {
	return func(ctx context.Context, requests int) {
		s.Tell(ctx, errs.Event{Kind: errs.EventShared, Name: name, N: int64(requests)})
	}
}

func (s *Session) recordError(event errs.Event) {
	// a renewal that finds the hold lost is followed by EventEnded
	if event.Kind == errs.EventRenewed && errors.Is(event.Err, errs.ErrLost) {
		return
	}
	if label, ok := errorLabels[event.Kind]; ok {
		s.recentErrors.Add(label, event.Name, event.Err)
	}
}
