package grpcfence_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/contrib/fence/grpcfence"
)

// service acts on what HealthCheckRequest.Service names.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	tokens []redlatchfence.Token
}

func (s *service) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {
	token, _ := redlatchfence.FromContext(ctx)
	s.tokens = append(s.tokens, token)
	if r.Service == "broken" {
		return nil, status.Error(codes.NotFound, "broken")
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	token, _ := redlatchfence.FromContext(stream.Context())
	s.tokens = append(s.tokens, token)
	return stream.Send(&grpc_health_v1.HealthCheckResponse{})
}

func byService(_ context.Context, _ string, req any) string {
	return req.(*grpc_health_v1.HealthCheckRequest).Service
}

// serve is a service behind a guard, a client with the interceptors, and one without.
func serve(t *testing.T, guard redlatchfence.Guard) (s *service, fenced, plain grpc_health_v1.HealthClient) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fence := grpcfence.New(guard, byService)
	server := grpc.NewServer(grpc.UnaryInterceptor(fence.Unary), grpc.StreamInterceptor(fence.Stream))
	s = &service{}
	grpc_health_v1.RegisterHealthServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	dial := func(opts ...grpc.DialOption) grpc_health_v1.HealthClient {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
		conn, err := grpc.NewClient(listener.Addr().String(), opts...)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return grpc_health_v1.NewHealthClient(conn)
	}
	return s, dial(grpc.WithUnaryInterceptor(grpcfence.UnaryClient), grpc.WithStreamInterceptor(grpcfence.StreamClient)),
		dial()
}

// plainGuard is a Guard and not an Exclusive.
type plainGuard struct{ redlatchfence.Guard }

func TestCall_StaleOrBadToken_IsRefused(t *testing.T) {
	for name, guard := range map[string]redlatchfence.Guard{
		"exclusive": &redlatchfence.Memory{}, "plain": plainGuard{&redlatchfence.Memory{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, fenced, plain := serve(t, guard)
			call := func(token redlatchfence.Token, service string) error {
				_, err := fenced.Check(redlatchfence.NewContext(t.Context(), token),
					&grpc_health_v1.HealthCheckRequest{Service: service})
				return err
			}
			watch := func(token redlatchfence.Token) error {
				stream, err := fenced.Watch(redlatchfence.NewContext(t.Context(), token),
					&grpc_health_v1.HealthCheckRequest{Service: "a"})
				if err != nil {
					return err
				}
				_, err = stream.Recv()
				return err
			}
			require.NoError(t, call(33, "a"))
			require.NoError(t, watch(34))
			for _, err := range []error{call(33, "a"), watch(33)} {
				require.ErrorIs(t, err, redlatchfence.ErrStale)
				require.Equal(t, codes.Aborted, status.Code(err), "it is the status, too")
			}
			require.NoError(t, call(33, "b"), "another resource")
			require.Equal(t, codes.NotFound, status.Code(call(34, "broken")))
			require.Equal(t, []redlatchfence.Token{33, 34, 33, 34}, s.tokens)

			require.Equal(t, codes.InvalidArgument, status.Code(call(35, "")), "no resource")
			for _, err := range []error{call(0, "a"), watch(0)} {
				require.ErrorIs(t, err, redlatchfence.ErrInvalid, "nothing is sent")
			}
			for _, values := range [][]string{nil, {"0"}, {"x"}, {"35", "36"}} {
				ctx := t.Context()
				for _, v := range values {
					ctx = metadata.AppendToOutgoingContext(ctx, grpcfence.Key, v)
				}
				_, err := plain.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "a"})
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%q", values)
				stream, err := plain.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "a"})
				require.NoError(t, err)
				_, err = stream.Recv()
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%q", values)
			}
			require.Len(t, s.tokens, 4)
		})
	}
}

type brokenGuard struct{}

func (brokenGuard) Advance(context.Context, string, redlatchfence.Token) error {
	return errors.New("down")
}

func TestCall_GuardDown_IsUnavailable(t *testing.T) {
	_, fenced, _ := serve(t, brokenGuard{})
	_, err := fenced.Check(redlatchfence.NewContext(t.Context(), 33), &grpc_health_v1.HealthCheckRequest{Service: "a"})
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NotErrorIs(t, err, redlatchfence.ErrStale)
	require.Panics(t, func() { grpcfence.New(nil, byService) })
}
