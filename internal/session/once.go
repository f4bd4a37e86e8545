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
// a moment after ctx has ended; a reply that comes later still goes to Call.Late.
func (s *Session) AttemptOnce(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	if ctx.Err() != nil {
		return s.Runner.Attempt(ctx, call) // says so, and sends nothing
	}
	// A deadline that is nearer than the attempt's own makes the runner send it on a goroutine of its own, where the
	// reply is not lost.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.CallTimeout-time.Microsecond)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if script.Pause(own, ReplyGrace) {
			cancel()
		}
	})
	defer stop()
	m, err := s.Runner.Attempt(own, call)
	// The context that ended may be own, which the caller does not know: the error speaks of the caller's.
	switch unknown := errors.Is(err, errs.ErrUnknownOutcome); {
	case unknown && ctx.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errs.Ended(ctx)))
	case unknown && own.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errNoReply))
	}
	return m, err
}

// ReplyGrace is how long the reply to such a request is still awaited after its caller's context has ended. A server
// that is well answers long before, so that giving up does not cost the caller the outcome.
const ReplyGrace = 40 * time.Millisecond

var errNoReply = errors.New("no reply within the call timeout")

// DoOnce is Runner.Do for a request that may not run twice: a try follows another only if that surely has not run.
func (s *Session) DoOnce(ctx context.Context, call script.Call) (m rueidis.RedisMessage, err error) {
	_, err = script.Repeat(ctx, true, func() (err error) {
		m, err = s.AttemptOnce(ctx, call)
		return err
	})
	return m, err
}

// ToRelease gives a caller whose context has ended a second of its own: releasing is what such callers do last.
func ToRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}
