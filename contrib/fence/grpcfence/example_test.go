package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/contrib/fence/grpcfence"
)

// A call with the token of a holder that has lost its lock is refused.
func ExampleServer() {
	server := grpcfence.New(&redlatchfence.Memory{}, func(_ context.Context, _ string, req any) string {
		return req.(interface{ GetService() string }).GetService() // what the call acts on
	})
	s := grpc.NewServer(grpc.UnaryInterceptor(server.Unary), grpc.StreamInterceptor(server.Stream))
	grpc_health_v1.RegisterHealthServer(s, &service{}) // a program has a service of its own
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go s.Serve(listener)
	defer s.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpcfence.UnaryClient), grpc.WithStreamInterceptor(grpcfence.StreamClient))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	for _, token := range []redlatchfence.Token{34, 33} {
		ctx := redlatchfence.NewContext(context.Background(), token)
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "account:7"})
		fmt.Println(token, status.Code(err), errors.Is(err, redlatchfence.ErrStale))
	}
	// Output:
	// 34 OK false
	// 33 Aborted true
}
