package script_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// causes are errors of another call, with which an errgroup ends the context of all of its calls. They prove nothing
// about this call.
var causes = map[string]error{
	"connection refused": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
	"unknown host":       &net.DNSError{Err: "no such host", Name: "another"},
	"no slot":            rueidis.ErrNoSlot,
	"not replicated":     errs.ErrNotReplicated,
}

func TestAttempt_CauseOfAnotherCall_ProvesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			r := script.NewRunner(c, time.Hour)
			get(t, c, "k")
			s.Stop(t)
			defer s.Resume(t)
			var ctx context.Context
			err := errs.ErrUnavailable
			for after := 20 * time.Millisecond; errors.Is(err, errs.ErrUnavailable) && after < time.Minute; after *= 2 {
				var cancel context.CancelCauseFunc
				ctx, cancel = context.WithCancelCause(context.Background())
				time.AfterFunc(after, func() { cancel(cause) }) // on a busy machine, maybe before the call is sent
				_, err = r.Attempt(ctx, call("k"))
			}
			require.ErrorIs(t, err, errs.ErrUnknownOutcome, "sent, and not answered")
			require.NotErrorIs(t, err, errs.ErrUnavailable)

			_, err = r.Attempt(ctx, call("k"))
			require.ErrorIs(t, err, errs.ErrUnavailable, "not sent")
			require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
		})
	}
}

func TestTimed_CauseOfAnotherCall_IsNoReply(t *testing.T) {
	s, run, _ := timed(t, time.Second)
	s.unmet = fmt.Errorf("%w: incr on %q: %w", errs.ErrUnknownOutcome, "k", errs.ErrNotReplicated)
	s.broken = errors.New("decoded a reply that never came")
	_, err := run()
	require.Equal(t, s.unmet, err)
}
