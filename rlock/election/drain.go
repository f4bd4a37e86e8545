package election

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Drain asks the present leader to hand over, whichever process it is in, and waits until it leads no more. After that
// the client of that leader does not campaign in this election for rest, counted from when it saw the request: it looks
// once in a Heartbeat. A Run goes on after the rest. Another candidate is elected meanwhile, if there is one.
//
// nil: the leader of that moment leads no more, or there was none. Otherwise the error is ctx's cause, if it has ended,
// that of [Election.Leader], or ErrInvalidOption if rest is negative. The request may then still have its effect, for
// WatchdogTimeout, or three Heartbeats if that is longer.
//
// It is a request: a leader whose work does not stop leads on, and so does one whose user lacks the right to look. The
// next leader is not asked.
func (e *Election) Drain(ctx context.Context, rest time.Duration) error {
	s := e.c.session
	if err := s.Usable(e.bad, session.CheckRange("rest", rest, 0)); err != nil {
		return err
	}
	leader, err := e.Leader(ctx)
	if err != nil || !leader.Elected() {
		return err
	}
	_, err = session.Ask(ctx, s, nil, func(ctx context.Context) (struct{}, error) {
		_, err := s.Runner.Do(ctx, script.Call{Script: drainScript, Keys: []string{e.requests}, Args: []string{
			strconv.FormatInt(leader.Token, 10), script.Millis(rest), script.Millis(max(s.WatchdogTimeout, e.c.trust))}})
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	for now, err := range e.Observe(ctx) {
		if err != nil {
			return err
		}
		if now.Token != leader.Token {
			break
		}
	}
	return nil
}

// resting is in which elections a client was drained, until when. It is safe for concurrent use. Its zero value is
// ready.
type resting struct {
	mu    sync.Mutex
	until map[string]time.Time // by key
}

func (r *resting) begin(key string, rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[string]time.Time{}
	}
	for key, until := range r.until {
		if !time.Now().Before(until) {
			delete(r.until, key)
		}
	}
	if until := time.Now().Add(rest); until.After(r.until[key]) {
		r.until[key] = until
	}
}

// wait waits until the rest in an election is over, or ctx ends, or the client is closed.
func (r *resting) wait(ctx context.Context, e *Election) {
	r.mu.Lock()
	rest := time.Until(r.until[e.key])
	r.mu.Unlock()
	if rest > 0 {
		pause(ctx, e.c.session, rest)
	}
}
