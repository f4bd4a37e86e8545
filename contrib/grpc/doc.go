// Package redlatchgrpc limits the calls of a gRPC server by rate limiters that all processes share.
//
//	calls := red.Limiters().Limiter("calls", ratelimit.LimiterOptions{Rate: 10, WhenDown: ratelimit.Open})
//	limit, err := redlatchgrpc.New(red.Limiters(), redlatchgrpc.Limit{Limiter: calls, Key: redlatchgrpc.ByMetadata("x-user")})
//	s := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A call takes units of every Limit in one step, of all or of none; a stream takes them once, when it begins. One that
// is refused ends with RESOURCE_EXHAUSTED and a google.rpc.RetryInfo, which says when it could pass. One that cannot be
// judged, because Redis is down and a limiter's policy is ratelimit.Fail, ends with UNAVAILABLE.
package redlatchgrpc
