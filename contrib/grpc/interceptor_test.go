package redlatchgrpc_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/redlatch/redlatch"
	redlatchgrpc "github.com/redlatch/redlatch/contrib/grpc"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/redlatchtest"
)

// dial is a client of a health service behind the interceptor.
func dial(t *testing.T, i *redlatchgrpc.Interceptor) grpc_health_v1.HealthClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.UnaryInterceptor(i.Unary), grpc.StreamInterceptor(i.Stream))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func as(user string) context.Context {
	return metadata.NewOutgoingContext(context.Background(), metadata.Pairs("x-user", user))
}

func TestInterceptor_SeveralLimits_TakesOfAllAndSaysWhenToRetry(t *testing.T) {
	c := redlatchtest.New(t).Open(redlatch.Options{
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }, // the machine may be busy
	}).Limiters()
	i, err := redlatchgrpc.New(c,
		redlatchgrpc.Limit{Limiter: c.Limiter("user", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour}),
			Key: redlatchgrpc.ByMetadata("x-user")},
		redlatchgrpc.Limit{Limiter: c.Limiter("method", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour}),
			Key: redlatchgrpc.ByMethod,
			Cost: func(_ context.Context, method string) int64 {
				if strings.HasSuffix(method, "/Watch") {
					return 2
				}
				return 1
			}},
	)
	require.NoError(t, err)
	client := dial(t, i)
	check := func(user string) error {
		_, err := client.Check(as(user), &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	require.NoError(t, check("ann"))
	require.NoError(t, check("ann"))
	err = check("ann")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	details := status.Convert(err).Details()
	require.Len(t, details, 1)
	retry := details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration()
	require.InDelta(t, 30*time.Minute, retry, float64(time.Minute))
	for n := range 3 {
		require.NoError(t, check(strings.Repeat("{x}", 50+n)),
			"long names stand for themselves, and the refused call paid nothing")
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(check("bob")), "the method's five are used up")
	watch := func() error {
		s, err := client.Watch(as("cid"), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = s.Recv()
		return err
	}
	require.NoError(t, watch())
	require.NoError(t, watch())
	require.Equal(t, codes.ResourceExhausted, status.Code(watch()))
}

// An empty key would be in a slot of its own for each limiter of a Cluster.
func TestByMetadata_FieldMissing_HasAKey(t *testing.T) {
	for _, pairs := range [][]string{nil, {"x-user", ""}, {"x-other", "ann"}} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
		require.Equal(t, "(none)", redlatchgrpc.ByMetadata("x-user")(ctx, "/m"))
	}
}

func TestInterceptor_ServerDown_FollowsThePolicy(t *testing.T) {
	server := redlatchtest.New(t)
	c := server.Open().Limiters()
	fail, err := redlatchgrpc.New(c, redlatchgrpc.Limit{Limiter: c.Limiter("fail", ratelimit.LimiterOptions{Rate: 9})})
	require.NoError(t, err)
	open, err := redlatchgrpc.New(c,
		redlatchgrpc.Limit{Limiter: c.Limiter("open", ratelimit.LimiterOptions{Rate: 9, WhenDown: ratelimit.Open})})
	require.NoError(t, err)
	server.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
	_, err = dial(t, fail).Check(as("ann"), &grpc_health_v1.HealthCheckRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NotContains(t, err.Error(), "rc:", "keys are nobody's business")
	_, err = dial(t, open).Check(as("ann"), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
}

func TestNew_BadLimits_AreRefused(t *testing.T) {
	c := redlatchtest.New(t).Open().Limiters()
	for _, limits := range [][]redlatchgrpc.Limit{nil, make([]redlatchgrpc.Limit, 17), make([]redlatchgrpc.Limit, 1)} {
		_, err := redlatchgrpc.New(c, limits...)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	}
	_, err := redlatchgrpc.New(nil, redlatchgrpc.Limit{})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
}
