package redlatchgrpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Limit is one limit of a call.
type Limit struct {
	// Limiter has the limit. Required.
	Limiter *ratelimit.Limiter
	// Key is whose limit it is: see ByMetadata and ByMethod. Defaults to nil: one limit for all calls.
	Key func(ctx context.Context, method string) string
	// Cost is how many units a call takes, 1 to the limiter's burst; 0: none. Defaults to nil: one.
	Cost func(ctx context.Context, method string) int64
}

// Interceptor limits calls. It is safe for concurrent use.
type Interceptor struct {
	c      *ratelimit.Client
	limits []Limit
}

// New returns an Interceptor that takes from all limits in one step, 1 to 16. In a Cluster their keys must be in one
// slot: see ratelimit.Client.AllowAll. The error is redlatch.ErrInvalidOption. It sends nothing.
func New(c *ratelimit.Client, limits ...Limit) (*Interceptor, error) {
	if c == nil {
		return nil, fmt.Errorf("redlatchgrpc: %w: client is nil", redlatch.ErrInvalidOption)
	}
	if len(limits) == 0 || len(limits) > 16 {
		return nil, fmt.Errorf("redlatchgrpc: %w: the number of limits is %d, must be 1 to 16", redlatch.ErrInvalidOption,
			len(limits))
	}
	for i, l := range limits {
		if l.Limiter == nil {
			return nil, fmt.Errorf("redlatchgrpc: %w: Limiter of limit %d is nil", redlatch.ErrInvalidOption, i)
		}
	}
	return &Interceptor{c, append([]Limit(nil), limits...)}, nil
}

// Unary is for grpc.UnaryInterceptor.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	if err := i.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// Stream is for grpc.StreamInterceptor.
func (i *Interceptor) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	if err := i.admit(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(srv, s)
}

// admit takes what a call costs; the error is a status.
func (i *Interceptor) admit(ctx context.Context, method string) error {
	takes := make([]ratelimit.Take, len(i.limits))
	for j, l := range i.limits {
		takes[j] = ratelimit.Take{Limiter: l.Limiter, N: 1}
		if l.Key != nil {
			takes[j].Key = l.Key(ctx, method)
		}
		if l.Cost != nil {
			takes[j].N = l.Cost(ctx, method)
		}
	}
	d, err := i.c.AllowAll(ctx, takes...)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return status.Error(codes.Unavailable, "rate limit not known") // err names keys and servers
	case d.Allowed:
		return nil
	}
	s := status.New(codes.ResourceExhausted, "rate limited")
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
		s = with
	}
	return s.Err()
}

// longestKey is the longest text of a client that is a key as it is.
const longestKey = 128

// without is the key of calls without a field. The empty key would be in a slot of its own for each limiter, and
// several limits could not be asked in one step in a Cluster.
const without = "(none)"

// ByMetadata is the first value of a field of the call's metadata, such as that of an API key. Calls without it share
// the limit of the key "(none)". A value that is longer than 128 bytes, or no plain text, stands for itself by its
// SHA-256: what clients send is never refused, and never chooses where in a Cluster its limit is.
func ByMetadata(field string) func(ctx context.Context, method string) string {
	return func(ctx context.Context, _ string) string {
		values := metadata.ValueFromIncomingContext(ctx, field)
		if len(values) == 0 || values[0] == "" {
			return without
		}
		if v := values[0]; len(v) <= longestKey && utf8.ValidString(v) && !strings.ContainsAny(v, "{}\x00") {
			return v
		}
		sum := sha256.Sum256([]byte(values[0]))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
}

// ByMethod is the full name of the method.
func ByMethod(_ context.Context, method string) string { return method }
