package session

import (
	"context"
	"errors"
	"sync"
	"time"

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
	event.Package = s.packageName
	if event.Waited || event.Kind == errs.EventWaiting {
		if observer := s.waitObserver.Load(); observer != nil {
			errs.Tell(ctx, *observer, event, s.Logger)
		}
	}
	if s.Observer == nil {
		return ctx
	}
	return errs.Tell(ctx, s.Observer, event, s.Logger)
}

// ObserveWaits adds an observer of the acquisitions that wait: of EventWaiting, and of the EventAcquired and
// EventNotAcquired with Waited. It runs on the goroutine of the call, and the context that it returns is ignored.
func (s *Session) ObserveWaits(observer errs.Observer) {
	for {
		before := s.waitObserver.Load()
		both := observer
		if before != nil {
			both = before.And(observer)
		}
		if s.waitObserver.CompareAndSwap(before, &both) {
			return
		}
	}
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

// failureLogInterval is the minimum time between two lines of one kind. Without it many calls would log when a server
// does not answer.
const failureLogInterval = 10 * time.Second

// failureLog is the time of the last line of each kind.
type failureLog struct {
	mu        sync.Mutex
	lastLines map[string]failureLine
}

type failureLine struct {
	at      time.Time
	skipped int // lines that were not logged since at
}

// Complain logs a failure in the background that is final. The text of the line, message, says what the failure means,
// and is its kind. Complain logs at most one line of a kind in 10 s, and keeps the error for RecentErrors.
func (s *Session) Complain(message, name string, err error) {
	s.recentErrors.Add("background", name, err)
	log := &s.failureLog
	log.mu.Lock()
	last := log.lastLines[message]
	due := time.Since(last.at) >= failureLogInterval
	if due {
		log.lastLines[message] = failureLine{at: time.Now()}
	} else {
		log.lastLines[message] = failureLine{last.at, last.skipped + 1}
	}
	log.mu.Unlock()
	if due {
		s.Logger.Warn("redlatch: "+message, "name", name, "error", err, "more", last.skipped)
	}
}
