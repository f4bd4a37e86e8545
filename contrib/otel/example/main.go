// Command example is a program with spans and metrics: two workers that want the same order, a pool of permits, and a
// lock that is taken away. It has a Redis of its own inside the process, and prints what an exporter would send: the
// spans as JSON or, with -short, a line each, and the metrics if they are asked for.
//
//	go -C contrib/otel run ./example -short
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/contrib/otel"
)

func main() {
	short := flag.Bool("short", false, "print a line for each span, in place of JSON")
	metrics := flag.Bool("metrics", false, "print the metrics, too, as JSON")
	flag.Parse()
	if err := run(context.Background(), *short, *metrics); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, short, metrics bool) error {
	end, err := providers(short, metrics)
	if err != nil {
		return err
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return err
	}
	defer m.Close()

	telemetry, err := redlatchotel.New(redlatchotel.Options{Links: true, Class: func(_, name string) string {
		class, _, _ := strings.Cut(name, ":") // "order:4711" is an order
		return class
	}})
	if err != nil {
		return err
	}
	opts := redlatch.Options{CallTimeout: 5 * time.Second}
	opts.Hub.NewClient = traced // yours: rueidisotel.NewClient
	red, err := redlatch.Open(rueidis.ClientOption{InitAddress: []string{m.Addr()}, ForceSingleClient: true,
		DisableCache: true},
		telemetry.Instrument(opts))
	if err != nil {
		return err
	}
	telemetry.Watch(red)

	err = errors.Join(orders(ctx, red), export(ctx, red), lose(ctx, red))
	return errors.Join(err, telemetry.Shutdown(ctx), end(ctx), red.Close(ctx))
}

// providers sets the global providers. A service has them export to a collector, in batches.
func providers(short, metrics bool) (end func(context.Context) error, err error) {
	var spans trace.SpanExporter = &lines{}
	if !short {
		if spans, err = stdouttrace.New(stdouttrace.WithPrettyPrint()); err != nil {
			return nil, err
		}
	}
	tracer := trace.NewTracerProvider(trace.WithBatcher(spans))
	otel.SetTracerProvider(tracer)
	if !metrics {
		return tracer.Shutdown, nil
	}
	out, err := stdoutmetric.New(stdoutmetric.WithPrettyPrint())
	if err != nil {
		return nil, err
	}
	meter := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(out)))
	otel.SetMeterProvider(meter)
	return func(ctx context.Context) error { return errors.Join(tracer.Shutdown(ctx), meter.Shutdown(ctx)) }, nil
}

// orders are two requests for one order: the second waits for the first.
func orders(ctx context.Context, red *redlatch.Client) error {
	lock := red.Locks().Reentrant("order:4711")
	var all sync.WaitGroup
	var first, second error
	held := make(chan struct{})
	all.Go(func() {
		ctx, span := otel.Tracer("shop").Start(ctx, "POST /orders/4711/pay")
		defer span.End()
		first = lock.WithLabel(redlatchotel.Label(ctx, "")).Do(ctx, func(context.Context) error {
			close(held)
			for end := time.Now().Add(30 * time.Second); red.Locks().Stats().Waiting == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(30 * time.Millisecond)
			return nil
		})
	})
	all.Go(func() {
		<-held
		ctx, span := otel.Tracer("shop").Start(ctx, "POST /orders/4711/cancel")
		defer span.End()
		second = lock.WithLabel(redlatchotel.Label(ctx, "")).Do(ctx, func(context.Context) error { return nil })
	})
	all.Wait()
	return errors.Join(first, second)
}

func export(ctx context.Context, red *redlatch.Client) error {
	ctx, span := otel.Tracer("shop").Start(ctx, "GET /export")
	defer span.End()
	return red.Semaphores().Semaphore("exports", 3).Do(ctx, 2, func(context.Context) error { return nil })
}

// lose has its lock taken away by an operator. Its Unlock says that it was lost.
func lose(ctx context.Context, red *redlatch.Client) error {
	ctx, span := otel.Tracer("shop").Start(ctx, "nightly job")
	defer span.End()
	lock := red.Locks().Reentrant("job:nightly")
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := lock.ForceUnlock(ctx); err != nil {
		return err
	}
	<-hold.Done()
	if err := hold.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return err
	}
	return nil
}

// traced makes a client with a span for each command, as rueidisotel does.
func traced(o rueidis.ClientOption) (rueidis.Client, error) {
	c, err := rueidis.NewClient(o)
	return &client{c}, err
}

type client struct{ rueidis.Client }

func (c *client) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	ctx, span := otel.Tracer("redis").Start(ctx, cmd.Commands()[0], api.WithSpanKind(api.SpanKindClient))
	defer span.End()
	return c.Client.Do(ctx, cmd)
}

// lines is an exporter that prints a line for each span: its trace and its own id, its parent's, its name, attributes
// and links.
type lines struct{ mu sync.Mutex }

func (l *lines) ExportSpans(_ context.Context, spans []trace.ReadOnlySpan) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range spans {
		var b strings.Builder
		fmt.Fprintf(&b, "%.4s %.4s in %.4s  %-24s", s.SpanContext().TraceID(), s.SpanContext().SpanID(), s.Parent().SpanID(),
			s.Name())
		attributes(&b, s.Attributes())
		for _, e := range s.Events() {
			fmt.Fprintf(&b, " event: %s", e.Name)
		}
		if s.Status().Code == codes.Error {
			fmt.Fprintf(&b, " ERROR: %s", s.Status().Description)
		}
		for _, link := range s.Links() {
			fmt.Fprintf(&b, " -> %.4s %.4s", link.SpanContext.TraceID(), link.SpanContext.SpanID())
			attributes(&b, link.Attributes)
		}
		fmt.Fprintln(os.Stdout, b.String())
	}
	return nil
}

func attributes(b *strings.Builder, all []attribute.KeyValue) {
	for _, a := range all {
		if a.Key != "error.type" {
			fmt.Fprintf(b, " %s=%s", strings.TrimPrefix(string(a.Key), "redlatch."), a.Value.String())
		}
	}
}

func (l *lines) Shutdown(context.Context) error { return nil }
