// Command grpc is a gRPC service whose calls work under locks, and shows which code a client gets for which error.
//
//	go run .                          embedded server, nothing else needed
//	go run . -redis 127.0.0.1:6379
//
// The interceptors of interceptor.go turn errors of redlatch into statuses, for calls and for streams. They carry the
// reason (ErrorInfo) and, only where the same call may be made again, when (RetryInfo):
//
//	error                                            code                RetryInfo
//	ErrLost, ErrMaxHold                              Aborted             no: the work was under way
//	the client cancelled the call                    Canceled            no
//	the client's deadline is over                    DeadlineExceeded    no
//	ErrNotAcquired                                   Aborted             as long as the work usually lasts
//	ErrLimited                                       ResourceExhausted   as the limiter says
//	ErrUnavailable, ErrNotReplicated                 Unavailable         yes
//	ErrClosed                                        Unavailable         no: ask another server
//	ErrUnknownOutcome                                Unknown             only if a second run does no harm
//	ErrInvalidName                                   InvalidArgument     no
//	ErrDenied, ErrWrongType, ErrInvalidOption ...    Internal            no: an operator has to act
//	ErrUnavailable in the middle of the work         Aborted             no: parts of it may be done
//
// So a retry policy names UNAVAILABLE, and never UNKNOWN. What the codes are chosen for stands at codeOf.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

func main() {
	redis := flag.String("redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *redis, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

// run has a client meet what the others do.
func run(ctx context.Context, redis string, out io.Writer) error {
	if redis == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return err
		}
		defer m.Close()
		redis = m.Addr()
	}
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{redis}, DisableCache: true,
		ForceSingleClient: true},
		redlatch.Options{Logger: slog.New(slog.DiscardHandler), CallTimeout: 5 * time.Second,
			Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 5 * time.Second }}) // this machine may be busy
	if err != nil {
		return err
	}
	defer red.Close(context.WithoutCancel(ctx))
	charges, stop, err := connect(serve(red, 2*time.Second, nil))
	if err != nil {
		return err
	}
	defer stop()

	fmt.Fprintln(out, "order 17, free:      ", outcome(charges.charge(ctx, "17")))
	hold, err := red.Locks().Reentrant("order:18").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "order 18, held:      ", outcome(charges.charge(ctx, "18")))
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fmt.Fprintln(out, "the same, in a hurry:", outcome(charges.watch(brief, "18")))
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	for range burst + 1 {
		err = charges.charge(ctx, "19")
	}
	fmt.Fprintln(out, "order 19, too often: ", outcome(err))
	return nil
}

// outcome is what a client sees.
func outcome(err error) string {
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	text := s.Code().String() + ": " + s.Message()
	for _, d := range s.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			text += fmt.Sprintf(", again after %v", r.RetryDelay.AsDuration().Round(100*time.Millisecond))
		}
	}
	return text
}

// burst is how many charges of an order pass at once.
const burst = 5

// service charges orders, each of them once at a time.
type service struct {
	red     *redlatch.Client
	usually time.Duration
	work    func(ctx context.Context, order string) error // nil: nothing is to be done
}

func (s *service) charge(ctx context.Context, order string) error {
	limiter := s.red.Limiters().Limiter("charges", ratelimit.LimiterOptions{Rate: 1, Per: time.Minute, Burst: burst})
	if err := limited(limiter.Allow(ctx, order, 1)); err != nil {
		return err
	}
	return s.under(ctx, order, func(ctx context.Context) error {
		if s.work == nil {
			return nil
		}
		return s.work(ctx, order) // ctx ends if the lock is lost
	})
}

// under does work under an order's lock. What is done is done: if the server does not confirm the release, that goes on
// in the background, and the client learns that the work succeeded. Otherwise it would do it again.
func (s *service) under(ctx context.Context, order string, work func(ctx context.Context) error) error {
	begun, done := false, false
	err := s.red.Locks().Reentrant("order:"+order).WithWait(s.usually).Do(ctx, func(ctx context.Context) error {
		begun = true
		err := work(ctx)
		done = err == nil
		return err
	})
	if reason := redlatch.Reason(err); done && reason != "lost" && reason != "max_hold" {
		return nil
	}
	if begun {
		return &begunError{err}
	}
	return err
}

// watch sends the order's state once no owner works on it, however long that takes.
func (s *service) watch(ctx context.Context, order string, send func(state string) error) error {
	return s.red.Locks().Reentrant("order:"+order).Do(ctx, func(context.Context) error { return send("idle") })
}

// serve makes a server of the service, without generated code: its messages are strings.
func serve(red *redlatch.Client, usually time.Duration,
	work func(ctx context.Context, order string) error) *grpc.Server {
	m := mapper{usually}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(m.unary), grpc.ChainStreamInterceptor(m.stream))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Charges", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Charge",
			Handler: func(srv any, ctx context.Context, decode func(any) error,
				intercept grpc.UnaryServerInterceptor) (any, error) {
				order := new(wrapperspb.StringValue)
				if err := decode(order); err != nil {
					return nil, err
				}
				return intercept(ctx, order, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/Charges/Charge"},
					func(ctx context.Context, req any) (any, error) {
						return &wrapperspb.StringValue{Value: "charged"}, srv.(*service).charge(ctx, req.(*wrapperspb.StringValue).Value)
					})
			}}},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true,
			Handler: func(srv any, stream grpc.ServerStream) error {
				order := new(wrapperspb.StringValue)
				if err := stream.RecvMsg(order); err != nil {
					return err
				}
				return srv.(*service).watch(stream.Context(), order.Value, func(state string) error {
					return stream.SendMsg(&wrapperspb.StringValue{Value: state})
				})
			}}},
	}, &service{red, usually, work})
	return server
}

// client calls the service.
type client struct{ conn *grpc.ClientConn }

// connect starts the server, and reaches it through memory.
func connect(server *grpc.Server) (c client, stop func(), err error) {
	pipe := bufconn.Listen(1 << 16)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(pipe) }()
	c.conn, err = grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	return c, func() {
		if c.conn != nil {
			c.conn.Close()
		}
		server.Stop()
		<-served
	}, err
}

func (c client) charge(ctx context.Context, order string) error {
	return c.conn.Invoke(ctx, "/Charges/Charge", &wrapperspb.StringValue{Value: order}, new(wrapperspb.StringValue))
}

func (c client) watch(ctx context.Context, order string) error {
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/Charges/Watch")
	if err == nil {
		err = stream.SendMsg(&wrapperspb.StringValue{Value: order})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil { // to the end: the lock is free then
		err = stream.RecvMsg(new(wrapperspb.StringValue))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
