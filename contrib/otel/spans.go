package redlatchotel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/measure"
)

// spans makes the spans of acquisitions, holds and releases. It keeps none of them: what is to be known later travels
// in the contexts that the observers return, and goes with the call and with the hold.
type spans struct {
	tracer trace.Tracer
	class  func(kind, name string) string
	names  bool
	finder *finder // nil: no links to holders
}

// key is the context key of an *acquisition, or of a *release, of one spans.
type key struct{ of *spans }

// observe takes in an event, of whatever package: those of counters, sales, red packets, limiters and hubs have no
// spans.
func (s *spans) observe(ctx context.Context, e redlatch.Event) context.Context {
	switch e.Kind {
	case redlatch.EventAcquiring:
		return s.acquiring(ctx, e)
	case redlatch.EventWaiting:
		s.waiting(ctx, e)
	case redlatch.EventWoken:
		s.woken(ctx, e.ByMessage)
	case redlatch.EventAcquired:
		s.acquired(ctx)
	case redlatch.EventNotAcquired:
		s.notAcquired(ctx, e.Err)
	case redlatch.EventAwaited:
		now := time.Now()
		_, span := s.tracer.Start(ctx, measure.Kind(e)+" await", trace.WithTimestamp(now.Add(-e.Took)),
			trace.WithAttributes(s.attributes(e)...))
		conclude(span, e.Err, "reached")
		span.End(trace.WithTimestamp(now))
	case redlatch.EventReleasing:
		return s.releasing(ctx, e)
	case redlatch.EventReleased:
		s.released(ctx, e.Err)
	case redlatch.EventEnded:
		s.ended(ctx, e.Err)
	}
	return ctx
}

// attributes are those of all spans of the call that an event is about.
func (s *spans) attributes(e redlatch.Event) []attribute.KeyValue {
	kind := measure.Kind(e)
	all := []attribute.KeyValue{attribute.String("redlatch.kind", kind),
		attribute.String("redlatch.class", s.class(kind, e.Name))}
	if s.names {
		all = append(all, attribute.String("redlatch.name", e.Name))
	}
	if e.N > 0 { // permits
		all = append(all, attribute.Int64("redlatch.permits", e.N))
	}
	return all
}

// acquisition is one call that acquires, and then what it holds.
type acquisition struct {
	kind       string
	attributes []attribute.KeyValue
	caller     context.Context // with the caller's span
	span       trace.Span      // of the call

	mu       sync.Mutex
	waited   bool
	woken    [2]int // by a timer, and by messages
	looking  bool   // for holders, which the span waits for
	end      time.Time
	granted  time.Time
	holdOver bool  // its span was made
	lost     error // before it was known to be granted
	hold     trace.SpanContext
}

func (s *spans) acquisition(ctx context.Context) *acquisition {
	a, _ := ctx.Value(key{s}).(*acquisition)
	return a
}

func (s *spans) acquiring(ctx context.Context, e redlatch.Event) context.Context {
	a := &acquisition{kind: measure.Kind(e), attributes: s.attributes(e), caller: ctx}
	ctx, a.span = s.tracer.Start(ctx, a.kind+" acquire", trace.WithAttributes(a.attributes...))
	return context.WithValue(ctx, key{s}, a)
}

func (s *spans) waiting(ctx context.Context, e redlatch.Event) {
	a := s.acquisition(ctx)
	if a == nil { // an Await
		return
	}
	a.mu.Lock()
	a.waited = true
	a.looking = a.span.IsRecording() && s.finder.look(ctx, a.kind, e.Name, a.link)
	a.mu.Unlock()
}

// link takes in who held what the acquisition waits for.
func (a *acquisition) link(holders []trace.SpanContext) {
	own := trace.SpanContextFromContext(a.caller)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range holders {
		if h.TraceID() != own.TraceID() || h.SpanID() != own.SpanID() { // it may have been granted meanwhile
			a.span.AddLink(trace.Link{SpanContext: h,
				Attributes: []attribute.KeyValue{attribute.String("redlatch.link", "holder")}})
		}
	}
	a.looking = false
	if !a.end.IsZero() {
		a.span.End(trace.WithTimestamp(a.end))
	}
}

func (s *spans) woken(ctx context.Context, byMessage bool) {
	if a := s.acquisition(ctx); a != nil {
		by := 0
		if byMessage {
			by = 1
		}
		a.mu.Lock()
		a.woken[by]++
		a.mu.Unlock()
	}
}

// over ends the span of the call, unless holders are still looked for: then link does.
func (a *acquisition) over(err error) {
	a.end = time.Now()
	conclude(a.span, err, "acquired")
	a.span.SetAttributes(attribute.Bool("redlatch.waited", a.waited))
	if a.waited {
		a.span.SetAttributes(attribute.Int("redlatch.wakeups.message", a.woken[1]),
			attribute.Int("redlatch.wakeups.timer", a.woken[0]))
	}
	if !a.looking {
		a.span.End(trace.WithTimestamp(a.end))
	}
}

func (s *spans) notAcquired(ctx context.Context, err error) {
	if a := s.acquisition(ctx); a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.over(err)
	}
}

func (s *spans) acquired(ctx context.Context) {
	a := s.acquisition(ctx)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over(nil)
	a.granted = a.end
	if a.lost != nil { // between the grant and here
		s.held(a, a.lost, true)
	}
}

// ended is called for a hold that ended without a release.
func (s *spans) ended(ctx context.Context, why error) {
	a := s.acquisition(ctx)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.granted.IsZero() {
		a.lost = why
		return
	}
	s.held(a, why, true)
}

// held makes the span of a hold that is over, unless there is one. Called with a.mu held.
func (s *spans) held(a *acquisition, err error, lost bool) {
	if a.holdOver {
		return
	}
	a.holdOver = true
	_, span := s.tracer.Start(a.caller, a.kind+" hold", trace.WithTimestamp(a.granted),
		trace.WithAttributes(a.attributes...),
		trace.WithLinks(trace.Link{SpanContext: a.span.SpanContext(),
			Attributes: []attribute.KeyValue{attribute.String("redlatch.link", "acquire")}}))
	a.hold = span.SpanContext()
	if lost {
		cause := measure.Cause(err)
		span.AddEvent("lost", trace.WithAttributes(attribute.String("redlatch.cause", cause)))
		span.SetAttributes(attribute.String("redlatch.result", cause))
		fail(span, cause)
	} else {
		span.SetAttributes(attribute.String("redlatch.result", measure.Result(err, "released")))
	}
	span.End()
}

// release is one call that releases.
type release struct {
	of   *acquisition // nil: not known
	span trace.Span
}

func (s *spans) releasing(ctx context.Context, e redlatch.Event) context.Context {
	r := &release{of: s.acquisition(e.Acquisition)}
	ctx, r.span = s.tracer.Start(ctx, measure.Kind(e)+" release", trace.WithAttributes(s.attributes(e)...))
	return context.WithValue(ctx, key{s}, r)
}

func (s *spans) released(ctx context.Context, err error) {
	r, _ := ctx.Value(key{s}).(*release)
	if r == nil {
		return
	}
	if a := r.of; a != nil {
		a.mu.Lock()
		reason := redlatch.Reason(err)
		s.held(a, err, reason == "lost" || reason == "max_hold")
		if a.hold.IsValid() {
			r.span.AddLink(trace.Link{SpanContext: a.hold,
				Attributes: []attribute.KeyValue{attribute.String("redlatch.link", "hold")}})
		}
		a.mu.Unlock()
	}
	conclude(r.span, err, "released")
	r.span.End()
}

// conclude says how a call ended: success, or err's reason. A wait that ended without what it was for is not an error.
func conclude(span trace.Span, err error, success string) {
	result := measure.Result(err, success)
	span.SetAttributes(attribute.String("redlatch.result", result))
	if err == nil {
		return
	}
	switch result {
	case "not_acquired", "canceled", "timeout":
	default:
		fail(span, result)
	}
}

// fail gives a span the status of an error. The error's text has names in it: the reason must do.
func fail(span trace.Span, reason string) {
	span.SetAttributes(attribute.String("error.type", reason))
	span.SetStatus(codes.Error, reason)
}
