package script

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// Do repeats the call until it is answered, with growing pauses, while that is safe and ctx lasts; each attempt gets
// at most the call timeout. ctx should have a deadline. The error is ErrUnknownOutcome if any attempt may have run.
func (r *Runner) Do(ctx context.Context, call Call) (reply rueidis.RedisMessage, err error) {
	return r.DoWithin(ctx, call, 0, nil)
}

// DoWithin is Do that ends after bound, with cause why, if bound is not 0. A bound is at least the call timeout, so the
// first attempt, which is the only one of nearly every call, needs no context of its own.
func (r *Runner) DoWithin(ctx context.Context, call Call, bound time.Duration,
	why error) (rueidis.RedisMessage, error) {
	start := r.elapsed()
	call.start = start
	reply, err := r.Attempt(ctx, call)
	if err == nil || !NotAnswered(err) {
		return reply, err
	}
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, r.base.Add(start+bound), why)
		defer cancel()
	}
	call.start = 0
	return r.repeat(ctx, call, err)
}

// repeat is what Do does after a first attempt that failed.
func (r *Runner) repeat(ctx context.Context, call Call, first error) (reply rueidis.RedisMessage, err error) {
	_, err = Repeat(ctx, call.Once, func() (err error) {
		if err, first = first, nil; err == nil {
			reply, err = r.Attempt(ctx, call)
		}
		return err
	})
	return reply, err
}

// Repeat calls try until it is answered, which may be by an error, with growing pauses while ctx lasts; once: not after
// an ErrUnknownOutcome. unsure: a try of unknown outcome came before the answer, so what the answer speaks of may be
// that try's work. Without an answer the error is ErrUnknownOutcome if any try may have run. A last try that only ran
// out of time says nothing of the server, so the error is that of the try before.
func Repeat(ctx context.Context, once bool, try func() error) (unsure bool, err error) {
	var before error
	for attempt := 0; ; attempt++ {
		if err = try(); err == nil || !NotAnswered(err) {
			return unsure, err
		}
		unknown := errors.Is(err, errs.ErrUnknownOutcome)
		unsure = unsure || unknown
		if before != nil && errs.IsCut(err) && errors.Is(err, context.DeadlineExceeded) {
			err = before
		}
		before = err
		if unknown && once || ctx.Err() != nil || !Pause(ctx, Backoff(attempt)) {
			if unsure {
				err = Unsure(err)
			}
			return unsure, err
		}
	}
}

// Backoff is the pause after the n-th failed attempt in a row: 2 ms doubled to 256 ms, half of it random, so that
// the clients of a server that comes back do not arrive together.
func Backoff(attempt int) time.Duration {
	longest := 2 * time.Millisecond << min(attempt, 7)
	return longest/2 + rand.N(longest/2)
}

// Pause waits for d and reports whether ctx lasted that long.
func Pause(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
