package grpcfence

import (
	"context"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// UnaryClient is for grpc.WithUnaryInterceptor. It sends the token of the call's context, redlatchfence.NewContext. A
// call without one is not sent: redlatchfence.ErrInvalid. A refusal is both a redlatchfence.ErrStale and the status it
// came as.
func UnaryClient(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	ctx, err := sending(ctx)
	if err != nil {
		return err
	}
	return answered(invoke(ctx, method, req, reply, conn, opts...))
}

// StreamClient is for grpc.WithStreamInterceptor. It does for a stream what UnaryClient does for a call; the stream's
// RecvMsg returns the refusal.
func StreamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	stream grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := sending(ctx)
	if err != nil {
		return nil, err
	}
	s, err := stream(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, answered(err)
	}
	return answering{s}, nil
}

type answering struct{ grpc.ClientStream }

func (t answering) RecvMsg(m any) error { return answered(t.ClientStream.RecvMsg(m)) }

func sending(ctx context.Context) (context.Context, error) {
	token, _ := redlatchfence.FromContext(ctx)
	if err := token.Check(); err != nil {
		return nil, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	md.Set(Key, strconv.FormatInt(int64(token), 10)) // not appended: a server refuses two
	return metadata.NewOutgoingContext(ctx, md), nil
}

// refused is ErrStale, and the status that said so.
type refused struct{ error }

func (r refused) GRPCStatus() *status.Status { return status.Convert(r.error) }
func (r refused) Unwrap() []error            { return []error{redlatchfence.ErrStale, r.error} }

func answered(err error) error {
	if err == nil {
		return nil
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Reason == staleReason && info.Domain == domain {
			return refused{err}
		}
	}
	return err
}
