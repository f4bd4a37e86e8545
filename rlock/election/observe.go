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

// Observe yields the current leader, and then each later leader, and each change of a leader's value, and the zero
// Leader whenever there is none, until ctx ends: then its last error is ctx's cause.
//
// Between two leaders the loop waits for messages, and reads the leader after each message and every PollCap. If the
// user may not subscribe, or the leaders may not publish, it only polls. While the server does not answer, the loop
// yields nothing, and the last leader may no longer lead.
//
// Each iteration has the current leader, and never the same as the iteration before: a loop whose body is slow misses
// leaders and values in between. It delays no other loop.
//
// An error ends the loop: the error of the first request, see [Election.Leader]; or ErrClosed if the client is closed
// meanwhile. Later refusals of the server are logged, and the request is repeated.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		last, err := e.Leader(ctx)
		if err != nil {
			yield(Leader{}, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		//nolint:contextcheck // the client's context: its Close ends the loop
		defer context.AfterFunc(e.client.session.Context(), func() { cancel(errs.ErrClosed) })()
		for yield(last, nil) {
			if last, err = e.next(ctx, last); err != nil {
				yield(Leader{}, e.client.session.Error(err))
				return
			}
		}
	}
}

// next waits for a leader other than last. It ends with ctx, or when Close ends the waits. Close ends the waits first
// and ctx later. A loop that sleeps here after a refusal therefore learns of Close within a second.
func (e *Election) next(ctx context.Context, last Leader) (Leader, error) {
	for {
		leader, err := e.change(ctx, last)
		var gaveUp *wait.GaveUp
		switch {
		case err == nil:
			return leader, nil
		case errors.As(err, &gaveUp):
			if endErr := cmp.Or(context.Cause(ctx), gaveUp.Cause); endErr != nil {
				return Leader{}, endErr
			}
			continue
		}
		// The server refused the request. A repetition helps when the cause was removed there.
		e.client.session.Complain("an observer of an election cannot read who leads", e.name, err)
		script.Pause(ctx, min(e.client.session.PollCap, time.Second))
	}
}

// change waits until the leader differs from last. The wait has the steps of a wait for a lock: read, subscribe and
// have the subscription confirmed, read again, and sleep until a message or PollCap.
func (e *Election) change(ctx context.Context, last Leader) (leader Leader, err error) {
	err = e.client.waiters.Wait(ctx, wait.Request{
		Name: e.name, Channel: e.announcementKey, Mode: wait.Alone,
		Try: func(ctx context.Context) (wait.Answer, error) {
			ctx, cancel := context.WithTimeout(ctx, e.client.session.Bound())
			defer cancel()
			leader, err = e.readLeader(ctx)
			return wait.Answer{Granted: err == nil && leader != last, Left: -1}, err
		},
	})
	return leader, err
}
