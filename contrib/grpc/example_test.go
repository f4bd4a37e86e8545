package redlatchgrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/redlatch/redlatch/contrib/grpc"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Two calls an hour of each method; a program gives the interceptor to its server.
func ExampleNew() {
	red, _, end := services.Redlatch()
	defer end()
	calls := red.Limiters().Limiter("calls", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour})
	limit, err := redlatchgrpc.New(red.Limiters(), redlatchgrpc.Limit{Limiter: calls, Key: redlatchgrpc.ByMethod})
	services.Must(err)
	s := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer s.Stop()

	for range 3 { // what the server does for each call
		answer, err := limit.Unary(context.Background(), "ping", &grpc.UnaryServerInfo{FullMethod: "/test/Ping"},
			func(_ context.Context, req any) (any, error) { return "pong", nil })
		fmt.Println(answer, status.Code(err))
	}
	// Output:
	// pong OK
	// pong OK
	// <nil> ResourceExhausted
}

// Calls are counted for the user that their metadata names.
func ExampleByMetadata() {
	key := redlatchgrpc.ByMetadata("x-user")
	fmt.Printf("%q\n", key(context.Background(), "/test/Ping"))
	// Output: "(none)"
}
