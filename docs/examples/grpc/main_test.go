package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

const patience = 30 * time.Second

// told is what a client learns of an error.
func told(t *testing.T, err error) (code codes.Code, reason string, again time.Duration) {
	t.Helper()
	s, ok := status.FromError(err)
	require.True(t, ok, "%v is no status", err)
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			require.Equal(t, "redlatch", d.Domain)
			require.Equal(t, s.Message(), d.Reason)
			reason = d.Reason
		case *errdetails.RetryInfo:
			again = d.RetryDelay.AsDuration()
		}
	}
	return s.Code(), reason, again
}

// ended is a context that is over.
func ended(why error) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if errors.Is(why, context.DeadlineExceeded) {
		ctx, cancel = context.WithDeadline(ctx, time.Now().Add(-time.Second))
	}
	cancel()
	return ctx
}

func TestEveryErrorHasItsCode(t *testing.T) {
	lives, usually := context.Background(), time.Second
	cancelled, late := ended(context.Canceled), ended(context.DeadlineExceeded)
	wrap := func(err error) error { return fmt.Errorf("rlock: %q on redis.internal:6379: %w", "order:17", err) }
	for _, c := range []struct {
		ctx    context.Context
		err    error
		code   codes.Code
		reason string
		again  time.Duration
	}{
		{lives, wrap(redlatch.ErrNotAcquired), codes.Aborted, "not_acquired", usually},
		{lives, wrap(redlatch.ErrLost), codes.Aborted, "lost", 0},
		{lives, wrap(redlatch.ErrMaxHold), codes.Aborted, "max_hold", 0},
		{lives, wrap(redlatch.ErrUnavailable), codes.Unavailable, "unavailable", usually},
		{lives, wrap(redlatch.ErrNotReplicated), codes.Unavailable, "not_replicated", usually},
		{lives, wrap(redlatch.ErrClosed), codes.Unavailable, "closed", 0},
		{lives, wrap(redlatch.ErrUnknownOutcome), codes.Unknown, "unknown_outcome", usually},
		{lives, wrap(redlatch.ErrDenied), codes.Internal, "denied", 0},
		{lives, wrap(redlatch.ErrWrongType), codes.Internal, "wrong_type", 0},
		{lives, wrap(redlatch.ErrInvalidOption), codes.Internal, "invalid_option", 0},
		{lives, wrap(rlock.ErrReentry), codes.Internal, "reentry", 0},
		{lives, wrap(redlatch.ErrInvalidName), codes.InvalidArgument, "invalid_name", 0},
		{lives, context.DeadlineExceeded, codes.DeadlineExceeded, "timeout", 0},
		{lives, &limitedError{ratelimit.Admission{RetryAfter: time.Minute}}, codes.ResourceExhausted, "limited", time.Minute},
		{lives, wrap(ratelimit.ErrLimited), codes.ResourceExhausted, "limited", usually},
		// a deadline of the handler's own ended the waiting: the lock is what is in the way
		{lives, errors.Join(redlatch.ErrNotAcquired, context.DeadlineExceeded), codes.Aborted, "not_acquired", usually},
		// the client has gone, or its time is over: the client is not to try again
		{cancelled, errors.Join(redlatch.ErrNotAcquired, context.Canceled), codes.Canceled, "", 0},
		{cancelled, errors.Join(redlatch.ErrUnavailable, context.Canceled), codes.Canceled, "", 0},
		{cancelled, errors.New("interrupted"), codes.Canceled, "", 0},
		{late, errors.Join(redlatch.ErrNotAcquired, context.DeadlineExceeded), codes.DeadlineExceeded, "", 0},
		{late, context.DeadlineExceeded, codes.DeadlineExceeded, "", 0},
		// but a loss stays one, whatever other error it is joined to
		{cancelled, errors.Join(context.Canceled, redlatch.ErrLost), codes.Aborted, "lost", 0},
		{lives, errors.Join(status.Error(codes.Canceled, "context canceled"), redlatch.ErrLost), codes.Aborted, "lost", 0},
		// work that was begun is not repeated blindly
		{lives, &begunError{wrap(redlatch.ErrUnavailable)}, codes.Aborted, "unavailable", 0},
		{lives, &begunError{wrap(redlatch.ErrUnknownOutcome)}, codes.Unknown, "unknown_outcome", 0},
		{lives, &begunError{wrap(redlatch.ErrLost)}, codes.Aborted, "lost", 0},
		{lives, &begunError{status.Error(codes.NotFound, "no such order")}, codes.NotFound, "", 0},
		// a handler's own status is the handler's
		{lives, status.Error(codes.NotFound, "no such order"), codes.NotFound, "", 0},
		{cancelled, status.Error(codes.NotFound, "no such order"), codes.NotFound, "", 0},
	} {
		err := mapper{usually}.status(c.ctx, c.err)
		code, reason, again := told(t, err)
		require.Equal(t, []any{c.code, c.reason, c.again}, []any{code, reason, again}, "%v", c.err)
		require.NotContains(t, err.Error(), "redis.internal")
		require.NotContains(t, err.Error(), "order:17")
		if c.code == codes.Unavailable && c.again > 0 {
			require.True(t, redlatch.Retryable(c.err), "what a retry policy repeats does no harm")
		}
	}
	require.NoError(t, mapper{}.status(lives, nil))
	other, own := errors.New("no paper"), fmt.Errorf("errgroup: %w", context.Canceled)
	require.Equal(t, other, mapper{}.status(lives, other), "not redlatch's")
	require.Equal(t, own, mapper{}.status(lives, own), "the handler's own context, not the client's")
}

// start has the service run, and a client of it.
func start(t *testing.T,
	work func(ctx context.Context, order string) error) (*redlatchtest.Server, client, context.Context) {
	t.Helper()
	srv := redlatchtest.New(t)
	// this machine may be busy
	red := srv.Open(redlatch.Options{Limiters: func(o *ratelimit.Options) { o.AllowTimeout = patience }})
	charges, stop, err := connect(serve(red, 2*time.Second, work))
	require.NoError(t, err)
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return srv, charges, ctx
}

func TestAnOrderThatSomebodyHasIsAborted(t *testing.T) {
	t.Parallel()
	srv, charges, ctx := start(t, nil)
	require.NoError(t, charges.charge(ctx, "17"))
	require.NoError(t, charges.watch(ctx, "17"))
	release := srv.HoldElsewhere("order:17")
	code, reason, again := told(t, charges.charge(ctx, "17"))
	require.Equal(t, codes.Aborted, code)
	require.Equal(t, "not_acquired", reason)
	require.Equal(t, 2*time.Second, again, "and not the 30 s of the holder's lease")
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	code, _, again = told(t, charges.watch(brief, "17"))
	require.Equal(t, codes.DeadlineExceeded, code)
	require.Zero(t, again)
	gone, leave := context.WithCancel(ctx)
	leave()
	code, _, _ = told(t, charges.charge(gone, "17"))
	require.Equal(t, codes.Canceled, code)
	release()
	require.NoError(t, charges.watch(ctx, "17"))
}

func TestWorkWhoseLockIsLostIsAbortedAndNotRepeated(t *testing.T) {
	t.Parallel()
	var srv *redlatchtest.Server
	srv, charges, ctx := start(t, func(ctx context.Context, order string) error {
		srv.Lose("order:" + order)
		<-ctx.Done()
		return ctx.Err()
	})
	code, reason, again := told(t, charges.charge(ctx, "17"))
	require.Equal(t, codes.Aborted, code)
	require.Equal(t, "lost", reason)
	require.Zero(t, again)
}

func TestAServerThatIsAwayIsUnavailableAndALostReplyUnknown(t *testing.T) {
	t.Parallel()
	srv, charges, ctx := start(t, nil)
	srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable, Name: "order:17"})
	code, reason, again := told(t, charges.charge(ctx, "17"))
	// The time may be over while a request is under way, whose outcome is not known then.
	require.Contains(t, []string{"Unavailable unavailable", "Unknown unknown_outcome"}, code.String()+" "+reason)
	require.Positive(t, again)
	srv.Heal()
	srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostRequest, Name: "order:18"})
	code, reason, again = told(t, charges.charge(ctx, "18"))
	require.Equal(t, codes.Unknown, code)
	require.Equal(t, "unknown_outcome", reason)
	require.Positive(t, again, "the library gives back what the lost request may have taken")
	srv.Heal()
}

func TestWorkThatIsDoneSucceedsThoughItsReleaseIsNotConfirmed(t *testing.T) {
	t.Parallel()
	var srv *redlatchtest.Server
	srv, charges, ctx := start(t, func(context.Context, string) error {
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "order:17"})
		return nil
	})
	require.NoError(t, charges.charge(ctx, "17"), "the client would charge again")
	srv.Heal()
}

func TestTooManyChargesAreResourceExhausted(t *testing.T) {
	t.Parallel()
	_, charges, ctx := start(t, nil)
	var err error
	for range burst + 1 {
		err = charges.charge(ctx, "17")
	}
	code, reason, again := told(t, err)
	require.Equal(t, codes.ResourceExhausted, code)
	require.Equal(t, "limited", reason)
	require.Positive(t, again)
	require.LessOrEqual(t, again, time.Minute)
}

func TestTheProgramShowsTheCodes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	require.Regexp(t, `(?s)free: +OK.*held: +Aborted: not_acquired, again after 2s.*hurry: DeadlineExceeded.*`+
		`often: +ResourceExhausted: limited, again after`, out.String())
}
