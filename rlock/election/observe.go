package election

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Observe yields the present leader, and then each later one, and each change of a leader's value, and the zero Leader
// whenever there is none, until ctx ends: then its last error is ctx's cause.
//
// Between two leaders the loop waits for messages, and asks the server after each one and every PollCap. Where the user
// may not subscribe, or the leaders may not publish, it only polls. While the server cannot be asked it yields nothing,
// and the last leader may be gone.
//
// Each turn has the leader of now, and never the one of the turn before: a loop whose body is slow misses leaders and
// values in between. It delays no one else.
//
// An error ends the loop: that of the first request, see [Election.Leader]; or ErrClosed if the client is closed
// meanwhile. Later refusals of the server are logged, and it is asked again.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		last, err := e.Leader(ctx)
		if err != nil {
			yield(Leader{}, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		//nolint:contextcheck // that of the client: its Close ends the loop
		defer context.AfterFunc(e.c.session.Context(), func() { cancel(errs.ErrClosed) })()
		for yield(last, nil) {
			if last, err = e.next(ctx, last); err != nil {
				yield(Leader{}, e.c.session.Error(err))
				return
			}
		}
	}
}

// next waits for another leader than last, and ends with ctx or the queue. Close closes the queue first, and ends ctx
// later: a loop that sleeps here after a refusal learns of it within a second.
func (e *Election) next(ctx context.Context, last Leader) (Leader, error) {
	for {
		now, err := e.change(ctx, last)
		var over *wait.GaveUp
		switch {
		case err == nil:
			return now, nil
		case errors.As(err, &over):
			if why := cmp.Or(context.Cause(ctx), over.Cause); why != nil {
				return Leader{}, why
			}
			continue
		}
		// the server's answer: asking again helps when something has changed there
		e.c.session.Complain("an observer of an election cannot look who leads", e.name, err)
		script.Pause(ctx, min(e.c.session.PollCap, time.Second))
	}
}

// change waits until another than last leads. It is a wait like that for a lock: look, subscribe and have it confirmed,
// look again, and sleep until a message or PollCap.
func (e *Election) change(ctx context.Context, last Leader) (now Leader, err error) {
	err = e.c.waiters.Wait(ctx, wait.Request{
		Name: e.name, Channel: e.announced, Mode: wait.Alone,
		Try: func(ctx context.Context) (wait.Answer, error) {
			ctx, cancel := context.WithTimeout(ctx, e.c.session.Bound())
			defer cancel()
			now, err = e.readLeader(ctx)
			return wait.Answer{Granted: err == nil && now != last, Left: -1}, err
		},
	})
	return now, err
}
