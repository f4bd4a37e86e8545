package redlatchotel_test

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/contrib/otel"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// A program has spans and metrics of all that it does, by classes of names. Yours takes exporters in place of the
// recorder and the reader, and need not name providers that are the global ones.
func Example() {
	server, option := services.Redis()
	defer server.Close()
	ctx := context.Background()
	recorder := tracetest.NewSpanRecorder()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	defer traces.Shutdown(ctx)
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	defer meters.Shutdown(ctx)

	telemetry, err := redlatchotel.New(redlatchotel.Options{TracerProvider: traces, MeterProvider: meters, Links: true,
		Class: func(kind, name string) string {
			class, _, _ := strings.Cut(name, ":") // "order:4711" is of class "order"
			return class
		}})
	services.Must(err)
	defer telemetry.Shutdown(ctx)
	red, err := redlatch.Open(ctx, option, telemetry.Instrument(redlatch.Options{}))
	services.Must(err)
	defer red.Close(ctx)
	telemetry.Watch(red)

	ctx, span := traces.Tracer("shop").Start(ctx, "POST /orders")
	err = red.Locks().Reentrant("order:4711").WithLabel(redlatchotel.Label(ctx, "")).Do(ctx, func(context.Context) error {
		return nil
	})
	services.Must(err)
	span.End()
	for _, s := range recorder.Ended() {
		fmt.Println(s.Name(), s.Parent().SpanID() == span.SpanContext().SpanID())
	}
	// Output:
	// lock acquire true
	// lock hold true
	// lock release true
	// POST /orders false
}

// A label can be read back by whoever inspects the lock.
func ExampleSpanContext() {
	label := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 nightly report"
	fmt.Println(redlatchotel.SpanContext(label).TraceID())
	fmt.Println(redlatchotel.Label(context.Background(), "a context without a span"))
	// Output:
	// 0af7651916cd43dd8448eb211c80319c
	// a context without a span
}

// A program that uses the packages alone gives each client the Observer, and has each client watched.
func ExampleTelemetry_Observe() {
	server, option := services.Redis()
	defer server.Close()
	ctx := context.Background()
	t, err := redlatchotel.New(redlatchotel.Options{}) // with the global providers
	services.Must(err)
	defer t.Shutdown(ctx)
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{Observer: t.Observe})
	services.Must(err)
	defer hub.Close(ctx)
	t.WatchHub(hub)
	locks, err := rlock.New(hub, rlock.Options{Observer: t.Observe})
	services.Must(err)
	defer locks.Close(ctx)
	t.WatchLocks(locks)
	// Semaphores, red packets, counters and limiters are made and watched in the same way. Sales are not watched.
	fmt.Println(locks.Reentrant("l").Do(ctx, func(context.Context) error { return nil }))
	// Output: <nil>
}
