// Package grpcfence carries fencing tokens over gRPC, and refuses calls whose token is stale.
//
//	conn, err := grpc.NewClient(address, grpc.WithUnaryInterceptor(grpcfence.UnaryClient),
//		grpc.WithStreamInterceptor(grpcfence.StreamClient))
//	reply, err := client.Withdraw(redlatchfence.NewContext(ctx, token), request)
//
//	fence := grpcfence.New(&guard, func(_ context.Context, _ string, req any) string {
//		return req.(interface{ GetAccount() string }).GetAccount()
//	})
//	s := grpc.NewServer(grpc.UnaryInterceptor(fence.Unary), grpc.StreamInterceptor(fence.Stream))
//
// The token is the metadata fencing-token. A server refuses
//
//   - a stale token with ABORTED, "restart the read-modify-write sequence", and a google.rpc.ErrorInfo with the reason
//     STALE_FENCING_TOKEN, which the client's interceptors make a redlatchfence.ErrStale;
//   - a call without one, with one that is not a token, or with a message that names no resource, with
//     INVALID_ARGUMENT;
//   - what the guard could not judge with UNAVAILABLE.
//
// With a redlatchfence.Exclusive, unary calls of a resource run one after the other. With another guard, and in
// streams, the check comes before the act: the handler itself must use a guard where it writes, with the token of its
// context (redlatchfence.FromContext), or a call that is suspended between the two writes late.
package grpcfence
