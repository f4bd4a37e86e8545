package redlatchgrpc_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/grpc"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Two calls an hour of each method; a program gives the interceptor to its server.
func ExampleNew() {
	server := miniredis.NewMiniRedis() // a program has a server
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	red, err := redlatch.Open(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true},
		// this machine may be busy
		redlatch.Options{Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }})
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(context.Background())
	calls := red.Limiters().Limiter("calls", ratelimit.LimiterOptions{Rate: 2, Per: time.Hour})
	var limit *redlatchgrpc.Interceptor
	if limit, err = redlatchgrpc.New(red.Limiters(),
		redlatchgrpc.Limit{Limiter: calls, Key: redlatchgrpc.ByMethod}); err != nil {
		log.Fatal(err)
	}
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
