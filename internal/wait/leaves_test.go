package wait_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/wait"
)

// reach is how long after its send a call of a leaver may run.
const reach = time.Second

// leaver is a Taker whose call for several ends with an event, on which its caller leaves.
type leaver struct {
	owner string
	event string // of its next call; "": refused
	takes time.Duration
	all   map[string]*leaver // by owner

	mu      sync.Mutex
	sent    time.Time // the call with the event
	places  bool      // which asked for places
	covered time.Time // up to when a release is owed; zero: none is
}

func (l *leaver) QueueEntry(bool) wait.QueueEntry {
	return wait.QueueEntry{Owner: l.owner, Entry: l.owner, Lease: time.Minute}
}

func (l *leaver) Taken(wait.Grant) bool { return true }

func (l *leaver) owes(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.covered) {
		l.covered = until
	}
}

func (l *leaver) ReleaseLater(after time.Time) {
	if after.IsZero() {
		after = time.Now()
	}
	l.owes(after)
}

func (l *leaver) Ask(context.Context, *wait.QueueEntry) (wait.Answer, error) {
	return wait.Answer{Left: -1, Sent: time.Now()}, nil
}

// RequestAll answers at once, unless a leaver has an event: then the call takes some time, and ends with it.
func (l *leaver) RequestAll(_ context.Context, all []wait.QueueEntry, enqueue bool) (any, error) {
	replies := make([]string, len(all))
	for i, e := range all {
		x := l.all[e.Owner]
		x.mu.Lock()
		event := x.event
		if event != "" {
			x.sent, x.places = time.Now(), enqueue
		}
		x.mu.Unlock()
		if event == "" {
			continue
		}
		time.Sleep(x.takes)
		switch event {
		case "unknown":
			return nil, fmt.Errorf("%w: connection reset", errs.ErrUnknownOutcome)
		case "unavailable":
			return nil, fmt.Errorf("%w: connection refused", errs.ErrUnavailable)
		}
		replies[i] = event
	}
	return replies, nil
}

func (l *leaver) Reply(replies any, i int, err error) (wait.Answer, error) {
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome):
		l.owes(l.sent.Add(reach))
		return wait.Answer{}, err
	case err != nil:
		return wait.Answer{}, err
	}
	switch replies.([]string)[i] {
	case "granted":
		return wait.Answer{Granted: true}, nil
	case "renamed":
		l.owes(time.Now())
		return wait.Answer{OwnerReplaced: true}, fmt.Errorf("%w: the grant took longer than its lease", errs.ErrUnavailable)
	case "again":
		return wait.Answer{Left: -1, Retry: true}, nil
	}
	return wait.Answer{Left: -1, Ticket: 1, Sent: time.Now()}, nil
}

// TestWait_CallerLeavesAtAnEvent_OwesWhatMayRun: a call for several ends in the very instant in which one of its
// waiters stops awaiting it. Afterwards the server may have granted what was asked for, have its place in the queue,
// or still run the request. For each of these a release is owed, and not before the request can run no more.
func TestWait_CallerLeavesAtAnEvent_OwesWhatMayRun(t *testing.T) {
	t.Parallel()
	runs := redistest.Sized(3, 8, 100)
	for _, event := range []string{"granted", "refused", "again", "renamed", "unavailable", "unknown"} {
		for _, places := range []bool{false, true} {
			for _, how := range []string{"ctx", "until", "close"} {
				t.Run(fmt.Sprint(event, ", places ", places, ", ", how), func(t *testing.T) {
					t.Parallel()
					for run := range 5 * runs {
						// the waiter awaits the call for 20 ms, or for as long as it may run if the client closes
						takes, grace := 100*time.Millisecond, 20*time.Millisecond
						if how == "close" {
							takes, grace = 1100*time.Millisecond, reach
						}
						off := time.Duration(max(0, run%5-2)-max(0, 2-run%5)) * time.Millisecond
						require.Empty(t, leavesAtAnEvent(t, event, places, how, takes, takes-grace+off), "leaves %v before it", off)
					}
				})
			}
		}
	}
}

// leavesAtAnEvent says what is wrong with what is owed, if anything is.
func leavesAtAnEvent(t *testing.T, event string, places bool, how string, takes, leaves time.Duration) (wrong string) {
	inRoom(t, func(t *testing.T, r *room) {
		all := map[string]*leaver{}
		for _, owner := range []string{"stays", "leaves"} {
			all[owner] = &leaver{owner: owner, takes: takes, all: all}
		}
		request := func(l *leaver) wait.Request {
			r := wait.Request{Name: "n", Channel: "c", MaxRunTime: reach, Taker: l}
			if places {
				r.Grants = "g"
			}
			return r
		}
		staying, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Wait(staying, request(all["stays"])) }()
		time.Sleep(200 * time.Millisecond) // it hears, and has a place, if there are any
		x := all["leaves"]
		x.mu.Lock()
		x.event = event
		x.mu.Unlock()
		ctx, leave := context.WithCancel(t.Context())
		q := request(x)
		switch how {
		case "ctx":
			time.AfterFunc(leaves, leave)
		case "until":
			q.Until = time.Now().Add(leaves)
		default:
			time.AfterFunc(leaves, r.Close)
		}
		err := r.Wait(ctx, q)
		x.mu.Lock()
		switch until := x.sent.Add(reach); {
		case err == nil && event != "granted":
			wrong = "it was not granted"
		case err == nil:
		case x.sent.IsZero():
			wrong = "it was not asked for"
		case x.covered.IsZero() && (event == "granted" || event == "unknown" || event == "refused" && x.places):
			wrong = "it is left on the server"
		case event == "unknown" && x.covered.Before(until):
			wrong = fmt.Sprintf("the release is final %v too early", until.Sub(x.covered))
		}
		x.event = ""
		x.mu.Unlock()
		stop()
		<-done
		leave()
		time.Sleep(30 * pollCap)
	})
	return wrong
}
