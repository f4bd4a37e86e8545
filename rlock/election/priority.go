package election

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// WithPriority returns the election with a priority for its candidates here: those with a higher one are preferred. By
// default it is 0, which no candidate prefers to another. It is at least 0 and at most 2^31-1; otherwise Campaign and
// Run return ErrInvalidOption.
//
//   - While a preferred candidate waits, no other is elected, whichever came first. Among equals the order is that of
//     Campaign.
//   - A leader is asked to hand over ([Leadership.HandOver]) once a preferred candidate has waited for more than three
//     Heartbeats without a break. It leads until it resigns.
//
// So a preferred candidate that crashes again and again takes the leadership from others at most once in three
// Heartbeats, and not at all if it lives for less. One that crashes while it waits keeps others from being elected for
// three Heartbeats, and takes it from no leader. Exclusion does not depend on any of that: preferences are requests,
// the lock decides.
//
// A preferred candidate that waits sends one call each Heartbeat.
func (e *Election) WithPriority(priority int) *Election {
	c := *e
	if c.priority = priority; c.bad == nil && (priority < 0 || priority > math.MaxInt32) {
		c.bad = c.c.session.Error(errs.InvalidOption("priority", priority, "0 to 2147483647"))
	}
	return &c
}

// stand makes a preferred candidate known until leave. Whether the leave arrives, it is believed for c.trust at most.
func (e *Election) stand(ctx context.Context) (leave func(), err error) {
	if e.priority == 0 {
		return func() {}, nil
	}
	s := e.c.session
	id := accessor.Of[*session.Session](e.c.locks).NewOwner("")
	call := script.Call{Script: standScript, Keys: []string{e.requests},
		Args: []string{id, strconv.Itoa(e.priority), script.Millis(e.c.trust)}}
	if _, err := s.Runner.Attempt(ctx, call); err != nil && !script.NotAnswered(err) && ctx.Err() == nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for script.Pause(ctx, e.c.trust/3) {
			_, _ = s.Runner.Attempt(ctx, call) // if it fails, others may be elected before this one
		}
	}()
	return func() {
		cancel()
		s.Finish(func() {
			<-ended // no request to stand is sent after that to leave
			_, _ = s.Runner.Attempt(context.WithoutCancel(ctx), script.Call{Script: script.Plain("hdel"),
				Keys: []string{e.requests}, Args: []string{id}})
		})
	}, nil
}

// standsAside reports whether a preferred candidate waits, so that this one, which has the lock, is not to lead. If
// that is not known it leads, and looks again later.
func (e *Election) standsAside(ctx context.Context, token int64) bool {
	r, err := e.readRequests(context.WithoutCancel(ctx), strconv.FormatInt(token, 10), 0)
	return err == nil && r.preferred
}

// asked is what a leader is asked to do.
type asked struct {
	drain     bool
	rest      time.Duration // after a drain
	preferred bool          // another candidate should lead
}

// readRequests asks what the leader with that token is asked to do. A preferred candidate counts once it has stood for
// longer than stood.
func (e *Election) readRequests(ctx context.Context, token string, stood time.Duration) (a asked, err error) {
	least := "-1" // any
	if stood > 0 {
		least = script.Millis(stood)
	}
	m, err := e.c.session.Runner.Attempt(ctx, script.Call{Script: requestsScript, Keys: []string{e.requests},
		Args: []string{token, strconv.Itoa(e.priority), least}})
	if err != nil {
		return a, err
	}
	list, err := m.AsIntSlice()
	if err != nil || len(list) != 3 {
		return a, script.Unexpected("read what the leader is asked", list, err)
	}
	return asked{drain: list[0] == 1, rest: time.Duration(list[1]) * time.Millisecond, preferred: list[2] == 1}, nil
}
