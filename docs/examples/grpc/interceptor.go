package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// mapper turns the errors of handlers into statuses. usually is how long work under a lock lasts, which is what a
// client should wait that was refused. The lease of the holder is no advice: it has 20 to 30 s left however soon the
// holder is done.
type mapper struct{ usually time.Duration }

func (m mapper) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, req)
	if err != nil {
		return nil, m.status(ctx, err)
	}
	return answer, nil
}

func (m mapper) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return m.status(s.Context(), handle(srv, s))
}

// codeOf are the codes by redlatch.Reason, for errors after which the caller still listens.
//
//   - Aborted, and not FailedPrecondition, for what another owner has: no operator has to act, it becomes free by
//     itself. And not Unavailable: that is what proxies take a server out of service for, and what common retry
//     policies repeat within milliseconds. With RetryInfo: nothing was begun, and the same call may be made again.
//   - Aborted without RetryInfo for what was lost: the work was under way, and another owner may do it by now. Whether
//     it is to be done again is for the client to find out: a retry "at a higher level", in the words of the code. The
//     same for a server that went away in the middle of the work.
//   - Unavailable for what was surely not run. A retry policy may name this code.
//   - Unknown for an outcome that is not known. A retry policy must not name this code: a counter would count twice.
//     Where the same call does no harm (redlatch.Retryable), RetryInfo says so.
//
// All else that redlatch returns is Internal: an operator has to act, and the client need not know what about.
var codeOf = map[string]codes.Code{
	"lost":            codes.Aborted,
	"max_hold":        codes.Aborted,
	"broken_barrier":  codes.Aborted,
	"not_acquired":    codes.Aborted,
	"sending":         codes.Aborted,
	"not_ended":       codes.Aborted,
	"limited":         codes.ResourceExhausted,
	"unavailable":     codes.Unavailable,
	"not_replicated":  codes.Unavailable,
	"closed":          codes.Unavailable, // this server is on its way out: another one serves
	"unknown_outcome": codes.Unknown,
	"timeout":         codes.DeadlineExceeded, // one that the handler set itself
	"invalid_name":    codes.InvalidArgument,  // names are made of what the client sends
	"out_of_range":    codes.OutOfRange,
}

// status is what the client learns of err. The order counts:
//
//  1. A loss, whatever else went wrong: work may have run at the same time as another's.
//  2. A status that the handler made itself.
//  3. The end of the call: the client has cancelled it, or its deadline is over. Then what that interrupted says
//     nothing.
//  4. What redlatch says.
//
// The text has no more than the reason: errors name keys, servers and users.
func (m mapper) status(ctx context.Context, err error) error {
	reason := redlatch.Reason(err)
	switch {
	case err == nil:
		return nil
	case reason == "lost", reason == "max_hold":
		return m.make(codes.Aborted, reason, 0)
	}
	if made, ok := status.FromError(err); ok {
		return made.Err()
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	code, known := codeOf[reason]
	switch {
	case !known && (reason == "other" || reason == "canceled"):
		// not redlatch's; or the handler's own context, not the client's
		return err
	case !known:
		code = codes.Internal
	}
	again := time.Duration(0)
	var begun *begunError
	if errors.As(err, &begun) {
		if code == codes.Unavailable { // which a retry policy would repeat
			code = codes.Aborted
		}
	} else if redlatch.Retryable(err) {
		again = m.usually
		var l *limitedError
		if errors.As(err, &l) {
			again = l.Admission.RetryAfter
		}
	}
	return m.make(code, reason, again)
}

// make makes a status. again: the same call may be made again after this time; 0: it should not.
func (m mapper) make(code codes.Code, reason string, again time.Duration) error {
	s := status.New(code, reason)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: "redlatch"}}
	if again > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(again)})
	}
	if with, err := s.WithDetails(details...); err == nil {
		s = with
	}
	return s.Err()
}

// begunError is the error of work that was begun: parts of it may be done, so the call is not one to be made again as
// it is.
type begunError struct{ error }

func (e *begunError) Unwrap() error { return e.error }

// limitedError is a refusal of a limiter with its advice, which is not an error by itself: see limited.
type limitedError struct{ ratelimit.Admission }

func (e *limitedError) Error() string { return "rate limited" }
func (e *limitedError) Unwrap() error { return ratelimit.ErrLimited }

// limited makes an error of an admission that was refused.
func limited(a ratelimit.Admission, err error) error {
	switch {
	case err != nil && !errors.Is(err, ratelimit.ErrLimited):
		return err
	case err == nil && a.Allowed:
		return nil
	}
	return &limitedError{a}
}
