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
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
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

func (s *spans) locks(kind string) rlock.Observer {
	return func(ctx context.Context, e rlock.Event) context.Context {
		return s.observe(ctx, kind, measure.OfLock(e))
	}
}

func (s *spans) semaphores() rsemaphore.Observer {
	return func(ctx context.Context, e measure.Event) context.Context {
		return s.observe(ctx, measure.Semaphore, e)
	}
}

func (s *spans) observe(ctx context.Context, kind string, e measure.Event) context.Context {
	switch e.Kind {
	case rsemaphore.EventAcquiring:
		return s.acquiring(ctx, kind, e.Name, e.N)
	case rsemaphore.EventWaiting:
		s.waiting(ctx, kind, e.Name)
	case rsemaphore.EventWoken:
		s.woken(ctx, e.ByMessage)
	case rsemaphore.EventAcquired:
		s.acquired(ctx)
	case rsemaphore.EventNotAcquired:
		s.notAcquired(ctx, e.Err)
	case rsemaphore.EventAwaited:
		now := time.Now()
		_, span := s.tracer.Start(ctx, kind+" await", trace.WithTimestamp(now.Add(-e.Waited)),
			trace.WithAttributes(s.attributes(kind, e.Name, 0)...))
		conclude(span, e.Err, "reached")
		span.End(trace.WithTimestamp(now))
	case rsemaphore.EventReleasing:
		return s.releasing(ctx, e.Acquisition, kind, e.Name, e.N)
	case rsemaphore.EventReleased:
		s.released(ctx, e.Err)
	case rsemaphore.EventEnded:
		s.ended(ctx, e.Err)
	}
	return ctx
}

// attributes are those of all spans of one call. n 0: it has no number of permits.
func (s *spans) attributes(kind, name string, n int) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("redlatch.kind", kind),
		attribute.String("redlatch.class", s.class(kind, name))}
	if s.names {
		all = append(all, attribute.String("redlatch.name", name))
	}
	if n > 0 {
		all = append(all, attribute.Int("redlatch.permits", n))
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

func (s *spans) acquiring(ctx context.Context, kind, name string, n int) context.Context {
	a := &acquisition{kind: kind, attributes: s.attributes(kind, name, n), caller: ctx}
	ctx, a.span = s.tracer.Start(ctx, kind+" acquire", trace.WithAttributes(a.attributes...))
	return context.WithValue(ctx, key{s}, a)
}

func (s *spans) waiting(ctx context.Context, kind, name string) {
	a := s.acquisition(ctx)
	if a == nil { // an Await
		return
	}
	a.mu.Lock()
	a.waited = true
	a.looking = a.span.IsRecording() && s.finder.look(ctx, kind, name, a.link)
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

func (s *spans) releasing(ctx, acquired context.Context, kind, name string, n int) context.Context {
	r := &release{of: s.acquisition(acquired)}
	ctx, r.span = s.tracer.Start(ctx, kind+" release", trace.WithAttributes(s.attributes(kind, name, n)...))
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
