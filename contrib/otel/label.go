package redlatchotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const traceparent = "traceparent"

// Label returns a label for rlock.Lock.WithLabel or rsemaphore.Semaphore.WithLabel that carries the span of ctx, as the
// traceparent of W3C Trace Context (00-<trace>-<span>-<flags>), and after a blank own, unless that is "". If ctx has no
// span it is own alone. It has 55 bytes, and 1 more than own with one: a label may have 256.
//
// Users that may inspect the lock see the label.
func Label(ctx context.Context, own string) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return strings.TrimSuffix(strings.TrimPrefix(carrier[traceparent]+" "+own, " "), " ")
}

// SpanContext returns the span that a label of Label carries; one that is not valid if it carries none.
func SpanContext(label string) trace.SpanContext {
	parent, _, _ := strings.Cut(label, " ")
	carrier := propagation.MapCarrier{traceparent: parent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
