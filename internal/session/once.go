package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// AttemptOnce is Runner.Attempt for a request whose outcome cannot be found out afterwards. So it awaits the reply for
// ReplyGrace after ctx has ended. A reply that comes later still goes to Call.Late.
func (s *Session) AttemptOnce(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	if ctx.Err() != nil {
		return s.Runner.Attempt(ctx, call) // returns the error, and sends nothing
	}
	// With a deadline that is nearer than its own timeout, the runner sends the attempt on a goroutine of its own, where
	// the reply is not lost.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.CallTimeout-time.Microsecond)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if script.Pause(own, ReplyGrace) {
			cancel()
		}
	})
	defer stop()
	reply, err := s.Runner.Attempt(own, call)
	// The ended context may be own, which the caller does not know, so the error names the end of the caller's context
	switch unknown := errors.Is(err, errs.ErrUnknownOutcome); {
	case unknown && ctx.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errs.Ended(ctx)))
	case unknown && own.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errNoReply))
	}
	return reply, err
}

// ReplyGrace is how long AttemptOnce awaits the reply after its caller's context has ended. A server under normal load
// answers long before, so that giving up does not cost the caller the outcome.
const ReplyGrace = 40 * time.Millisecond

var errNoReply = errors.New("no reply within the call timeout")

// DoOnce is Runner.Do for a request that may not run twice: another attempt follows only if the last one surely has not
// run.
func (s *Session) DoOnce(ctx context.Context, call script.Call) (reply rueidis.RedisMessage, err error) {
	_, err = script.Repeat(ctx, true, func() (err error) {
		reply, err = s.AttemptOnce(ctx, call)
		return err
	})
	return reply, err
}

// ToRelease gives a caller whose context has ended a second of its own: releasing is what such callers do last.
func ToRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}
