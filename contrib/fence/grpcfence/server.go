package grpcfence

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// Key is the key of the metadata that has a call's token, as a decimal number.
const Key = "fencing-token"

const (
	staleReason = "STALE_FENCING_TOKEN"
	domain      = "redlatch"
)

// Server refuses calls with a stale token. It is safe for concurrent use if its guard is.
type Server struct {
	guard    redlatchfence.Guard
	resource func(ctx context.Context, method string, req any) string
}

// New returns a Server. resource names what a message acts on: the request of a unary call, or each message that a
// stream receives; method is the full name. New panics if an argument is nil.
func New(guard redlatchfence.Guard, resource func(ctx context.Context, method string, req any) string) *Server {
	if guard == nil || resource == nil {
		panic("grpcfence: New: an argument is nil")
	}
	return &Server{guard, resource}
}

// Unary is for grpc.UnaryInterceptor.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	token, err := received(ctx)
	if err != nil {
		return nil, err
	}
	ctx = redlatchfence.NewContext(ctx, token)
	resource := s.resource(ctx, info.FullMethod, req)
	g, exclusive := s.guard.(redlatchfence.Exclusive)
	if !exclusive {
		if err := s.guard.Advance(ctx, resource, token); err != nil {
			return nil, refusal(err)
		}
		return handle(ctx, req)
	}
	var reply any
	served := false
	err = g.Do(ctx, resource, token, func(ctx context.Context) (err error) {
		served = true
		reply, err = handle(ctx, req)
		return err
	})
	if !served {
		err = refusal(err)
	}
	return reply, err
}

// Stream is for grpc.StreamInterceptor. It checks the token with every message that the handler receives: a stream may
// last longer than the hold. A message that is refused ends the stream, if the handler returns the error, as it should.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	token, err := received(stream.Context())
	if err != nil {
		return err
	}
	ctx := redlatchfence.NewContext(stream.Context(), token)
	return handle(srv, &checked{stream, ctx, s, token, info.FullMethod})
}

type checked struct {
	grpc.ServerStream
	ctx    context.Context
	server *Server
	token  redlatchfence.Token
	method string
}

func (c *checked) Context() context.Context { return c.ctx }

func (c *checked) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return refusal(c.server.guard.Advance(c.ctx, c.server.resource(c.ctx, c.method, m), c.token))
}

// received returns the token of a call; the error is a status.
func received(ctx context.Context) (redlatchfence.Token, error) {
	values := metadata.ValueFromIncomingContext(ctx, Key)
	if len(values) != 1 {
		return 0, status.Errorf(codes.InvalidArgument, "the metadata has %d values of %s, must be 1", len(values), Key)
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || redlatchfence.Token(n).Check() != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%s is %.64q, which is not a fencing token", Key, values[0])
	}
	return redlatchfence.Token(n), nil
}

// refusal returns the status for a guard's error.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redlatchfence.ErrStale):
		s, detailed := status.New(codes.Aborted, err.Error()).
			WithDetails(&errdetails.ErrorInfo{Reason: staleReason, Domain: domain})
		if detailed != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return s.Err()
	case errors.Is(err, redlatchfence.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, "the fencing token cannot be checked")
}
