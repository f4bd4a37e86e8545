package redlatchotel_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/contrib/otel"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// server is one inside the process. Yours is rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}.
func server() (option rueidis.ClientOption, end func()) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		log.Fatal(err)
	}
	return rueidis.ClientOption{InitAddress: []string{m.Addr()}, ForceSingleClient: true, DisableCache: true}, m.Close
}

// A program has spans and metrics of all that it does, by classes of names. Yours takes exporters in place of the
// recorder and the reader, and need not name providers that are the global ones.
func Example() {
	option, end := server()
	defer end()
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
	if err != nil {
		log.Fatal(err)
	}
	defer telemetry.Shutdown(ctx)
	red, err := redlatch.Open(option, telemetry.Instrument(redlatch.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	defer red.Close(ctx)
	telemetry.Watch(red)

	ctx, span := traces.Tracer("shop").Start(ctx, "POST /orders")
	err = red.Locks().Reentrant("order:4711").WithLabel(redlatchotel.Label(ctx, "")).Do(ctx, func(context.Context) error {
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
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

// A program that uses the packages alone gives each client its Observer, and has each client watched.
func ExampleTelemetry_Locks() {
	option, end := server()
	defer end()
	ctx := context.Background()
	t, err := redlatchotel.New(redlatchotel.Options{}) // with the global providers
	if err != nil {
		log.Fatal(err)
	}
	defer t.Shutdown(ctx)
	hub, err := pubsub.Dial(option, pubsub.Options{Observer: t.Hub()})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)
	t.WatchHub(hub)
	locks, err := rlock.New(hub, rlock.Options{Observer: t.Locks()})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	t.WatchLocks(locks)
	semaphores, err := rsemaphore.New(hub, rsemaphore.Options{Observer: t.Semaphores()})
	if err != nil {
		log.Fatal(err)
	}
	defer semaphores.Close(ctx)
	t.WatchSemaphores(semaphores)
	stocks, err := stock.New(hub, stock.Options{Observer: t.Stocks()})
	if err != nil {
		log.Fatal(err)
	}
	defer stocks.Close(ctx)
	t.WatchStocks(stocks)
	packets, err := redpacket.New(hub, redpacket.Options{Observer: t.RedPackets()})
	if err != nil {
		log.Fatal(err)
	}
	defer packets.Close(ctx)
	t.WatchRedPackets(packets)
	counters, err := rcounter.New(hub, rcounter.Options{Observer: t.Counters()})
	if err != nil {
		log.Fatal(err)
	}
	defer counters.Close(ctx)
	t.WatchCounters(counters)
	limiters, err := ratelimit.New(hub, ratelimit.Options{Observer: t.Limiters()})
	if err != nil {
		log.Fatal(err)
	}
	defer limiters.Close(ctx)
	t.WatchLimiters(limiters)
	fmt.Println(locks.Reentrant("l").Do(ctx, func(context.Context) error { return nil }))
	// Output: <nil>
}
