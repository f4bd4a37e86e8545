package redlatchotel_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/contrib/otel"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// rig is a client on an in-process server, and what OpenTelemetry was told of it.
type rig struct {
	t         *testing.T
	server    *redlatchtest.Server
	red       *redlatch.Client
	telemetry *redlatchotel.Telemetry
	tracer    trace.Tracer
	recorder  *tracetest.SpanRecorder
	metrics   *metric.ManualReader
}

// first is the part of a name before its first colon.
func first(_, name string) string {
	class, _, _ := strings.Cut(name, ":")
	return class
}

func newRig(t *testing.T, o redlatchotel.Options) *rig {
	t.Helper()
	r := &rig{t: t, server: redlatchtest.New(t), recorder: tracetest.NewSpanRecorder(), metrics: metric.NewManualReader()}
	spans := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.recorder))
	meters := metric.NewMeterProvider(metric.WithReader(r.metrics))
	o.TracerProvider, o.MeterProvider = spans, meters
	if o.Class == nil {
		o.Class = first
	}
	var err error
	r.telemetry, err = redlatchotel.New(o)
	require.NoError(t, err)
	r.tracer = spans.Tracer("the caller")
	r.red = r.server.Open(r.telemetry.Instrument(redlatch.Options{CallTimeout: 20 * time.Second,
		Locks: func(o *rlock.Options) { o.WatchdogTimeout = time.Minute }}))
	r.telemetry.Watch(r.red)
	t.Cleanup(func() {
		require.NoError(t, r.telemetry.Shutdown(context.Background()))
		require.NoError(t, errors.Join(spans.Shutdown(context.Background()), meters.Shutdown(context.Background())))
	})
	return r
}

// under begins a span of the caller.
func (r *rig) under(name string) (context.Context, trace.Span) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.t.Cleanup(cancel)
	return r.tracer.Start(ctx, name)
}

// ended are the spans of that name that have ended, in the order in which they began.
func (r *rig) ended(name string) (spans []sdktrace.ReadOnlySpan) {
	for _, s := range r.recorder.Ended() {
		if s.Name() == name {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return spans
}

// only is the one span of that name.
func (r *rig) only(name string) sdktrace.ReadOnlySpan {
	r.t.Helper()
	spans := r.ended(name)
	require.Len(r.t, spans, 1, name)
	return spans[0]
}

func value(s sdktrace.ReadOnlySpan, key string) any {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.AsInterface()
		}
	}
	return nil
}

// linked reports whether s has a link of that name to the span to.
func linked(s sdktrace.ReadOnlySpan, link string, to trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool {
		return l.SpanContext.SpanID() == to.SpanID() && l.SpanContext.TraceID() == to.TraceID() &&
			slices.Contains(l.Attributes, attribute.String("redlatch.link", link))
	})
}

// contend has another caller wait for the lock, and then the hold released, and the other's.
func (r *rig) contend(ctx context.Context, lock *rlock.Lock, hold *rlock.Hold) {
	r.t.Helper()
	other := make(chan error)
	go func() { other <- lock.Do(ctx, func(context.Context) error { return nil }) }()
	eventually(r.t, "it waits", func() bool { return r.red.Locks().Stats().Waiting == 1 })
	require.NoError(r.t, hold.Unlock(ctx))
	require.NoError(r.t, <-other)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 30*time.Second, time.Millisecond, what)
}

func TestSpans_OfALock_AreLinkedChildrenOfTheCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, caller := r.under("work")
	hold, err := r.red.Locks().Reentrant("order:1").Lock(ctx)
	require.NoError(t, err)
	require.Empty(t, r.ended("lock hold"), "it lasts")
	later, end := r.under("the end of the work")
	require.NoError(t, hold.Unlock(later))
	require.NoError(t, hold.Unlock(later), "a second time")

	acquire, held, release := r.only("lock acquire"), r.only("lock hold"), r.only("lock release")
	for s, parent := range map[sdktrace.ReadOnlySpan]trace.Span{acquire: caller, held: caller, release: end} {
		require.Equal(t, parent.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
		require.Equal(t, parent.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
		require.Equal(t, codes.Unset, s.Status().Code)
		require.Equal(t, "lock", value(s, "redlatch.kind"))
		require.Equal(t, "order", value(s, "redlatch.class"))
		require.Nil(t, value(s, "redlatch.name"), "a name is told only on demand")
	}
	require.Equal(t, "acquired", value(acquire, "redlatch.result"))
	require.Equal(t, false, value(acquire, "redlatch.waited"))
	require.Equal(t, "released", value(held, "redlatch.result"))
	require.Equal(t, "released", value(release, "redlatch.result"))
	require.True(t, linked(held, "acquire", acquire.SpanContext()))
	require.True(t, linked(release, "hold", held.SpanContext()))
	require.False(t, held.StartTime().Before(acquire.StartTime()))
	require.Equal(t, len(r.recorder.Started()), len(r.recorder.Ended())+2, "but for the caller's")
}

func TestSpans_ReentryOrReader_HasItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{Names: true})
	for _, lock := range []*rlock.Lock{r.red.Locks().Reentrant("l"), r.red.Locks().ReadWrite("rw").Read()} {
		r.recorder.Reset()
		one, first := r.under("first")
		outer, err := lock.Lock(one)
		require.NoError(t, err)
		two, second := r.under("second")
		inner, err := lock.Lock(outer.Context(two))
		require.NoError(t, err)
		require.NoError(t, outer.Unlock(one))
		require.Equal(t, first.SpanContext().SpanID(), r.only("lock hold").Parent().SpanID())
		require.NoError(t, inner.Unlock(two))
		require.Equal(t, second.SpanContext().SpanID(), r.ended("lock hold")[1].Parent().SpanID())
		require.Equal(t, lock.Name(), value(r.ended("lock hold")[1], "redlatch.name"))
	}
	r.recorder.Reset()
	both, err := rlock.Multi(r.red.Locks().Reentrant("a"), r.red.Locks().Reentrant("b"))
	require.NoError(t, err)
	ctx, _ := r.under("both")
	require.NoError(t, both.Do(ctx, func(context.Context) error { return nil }))
	for _, name := range []string{"lock acquire", "lock hold", "lock release"} {
		require.Len(t, r.ended(name), 2, name)
	}
}

func TestSpans_WaiterBehindALabel_IsLinkedToTheHolder(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(r *rig) (hold func(ctx context.Context,
		label string) (release func(context.Context) error, err error)){
		"lock": func(r *rig) func(context.Context, string) (func(context.Context) error, error) {
			return func(ctx context.Context, label string) (func(context.Context) error, error) {
				hold, err := r.red.Locks().Reentrant("order:1").WithLabel(label).Lock(ctx)
				if err != nil {
					return nil, err
				}
				return hold.Unlock, nil
			}
		},
		"semaphore": func(r *rig) func(context.Context, string) (func(context.Context) error, error) {
			return func(ctx context.Context, label string) (func(context.Context) error, error) {
				permit, err := r.red.Semaphores().Semaphore("pool", 1).WithLabel(label).Acquire(ctx, 1)
				if err != nil {
					return nil, err
				}
				return permit.Release, nil
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redlatchotel.Options{Links: true})
			acquire := of(r)
			ctx, holder := r.under("holder")
			release, err := acquire(ctx, redlatchotel.Label(ctx, "job 7"))
			require.NoError(t, err)
			other, _ := r.under("waiter")
			waited := make(chan error)
			go func() {
				end, err := acquire(other, redlatchotel.Label(other, ""))
				if err == nil {
					err = end(other)
				}
				waited <- err
			}()
			eventually(t, "the waiter is linked", func() bool {
				for _, s := range r.recorder.Started() {
					if s.Name() == kind+" acquire" && linked(s, "holder", holder.SpanContext()) {
						return true
					}
				}
				return false
			})
			require.NoError(t, release(ctx))
			require.NoError(t, <-waited)
			var span sdktrace.ReadOnlySpan
			eventually(t, "its span has ended", func() bool {
				all := r.ended(kind + " acquire")
				if len(all) == 2 {
					span = all[1]
				}
				return span != nil
			})
			require.Equal(t, true, value(span, "redlatch.waited"))
			require.NotNil(t, value(span, "redlatch.wakeups.message"))
			require.Len(t, span.Links(), 1)
			require.Empty(t, r.ended(kind + " acquire")[0].Links(), "the holder did not wait")
		})
	}
}

func TestSpans_LinksOff_AddNoCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, _ := r.under("work")
	lock := r.red.Locks().Reentrant("l").WithLabel(redlatchotel.Label(ctx, ""))
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	r.contend(ctx, lock, hold)
	for _, s := range r.recorder.Ended() {
		require.False(t, linked(s, "holder", trace.SpanContextFromContext(ctx)))
	}
	require.Equal(t, true, value(r.ended("lock acquire")[1], "redlatch.waited"))
}

func TestSpans_RefusedOrFailed_OnlyFailureIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, _ := r.under("work")
	release := r.server.HoldElsewhere("order:1")
	_, err := r.red.Locks().Reentrant("order:1").TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	span := r.only("lock acquire")
	require.Equal(t, "not_acquired", value(span, "redlatch.result"))
	require.Equal(t, codes.Unset, span.Status().Code)
	require.Equal(t, false, value(span, "redlatch.waited"))
	release()

	r.recorder.Reset()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.red.Locks().Reentrant("order:2").Lock(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "canceled", value(r.only("lock acquire"), "redlatch.result"))
	require.Equal(t, codes.Unset, r.only("lock acquire").Status().Code)

	r.recorder.Reset()
	r.server.Break(redlatchtest.Fault{Kind: redlatchtest.Denied})
	_, err = r.red.Locks().Reentrant("order:3").TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, redlatch.ErrDenied)
	span = r.only("lock acquire")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "denied"}, span.Status())
	require.Equal(t, "denied", value(span, "error.type"))
	require.Empty(t, span.Events(), "an error's text has names in it")
	require.Empty(t, r.ended("lock hold"))
	r.server.Heal()
}

func TestSpans_HoldLost_EndWithTheCause(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, _ := r.under("work")
	hold, err := r.red.Locks().Reentrant("order:1").Lock(ctx)
	require.NoError(t, err)
	r.server.Lose("order:1")
	select {
	case <-hold.Done():
	case <-time.After(time.Minute):
		t.Fatal("it was not lost")
	}
	eventually(t, "the span has ended", func() bool { return len(r.ended("lock hold")) == 1 })
	span := r.only("lock hold")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "lost"}, span.Status())
	require.Len(t, span.Events(), 1)
	require.Equal(t, "lost", span.Events()[0].Name)
	require.Equal(t, []attribute.KeyValue{attribute.String("redlatch.cause", "lost")}, span.Events()[0].Attributes)

	require.ErrorIs(t, hold.Unlock(ctx), redlatch.ErrLost)
	release := r.only("lock release")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "lost"}, release.Status())
	require.True(t, linked(release, "hold", span.SpanContext()))
	r.only("lock hold")
}

func TestSpans_PermitsAndBarrier_AreChildrenOfTheCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, caller := r.under("work")
	require.NoError(t, r.red.Semaphores().Semaphore("pool", 3).Do(ctx, 2, func(context.Context) error { return nil }))
	for _, name := range []string{"semaphore acquire", "semaphore hold", "semaphore release"} {
		require.EqualValues(t, 2, value(r.only(name), "redlatch.permits"), name)
		require.Equal(t, caller.SpanContext().SpanID(), r.only(name).Parent().SpanID(), name)
	}
	_, err := r.red.Semaphores().CyclicBarrier("barrier", 1).Await(ctx)
	require.NoError(t, err)
	require.Equal(t, "reached", value(r.only("semaphore await"), "redlatch.result"))
	require.Equal(t, caller.SpanContext().SpanID(), r.only("semaphore await").Parent().SpanID())

	r.recorder.Reset()
	counting := counting.New(r.red.Semaphores(), "counting")
	require.NoError(t, counting.Release(ctx, 1))
	require.NoError(t, counting.Acquire(ctx, 1))
	require.Empty(t, r.ended("semaphore hold"), "it knows no holders")
	r.only("semaphore acquire")
	r.only("semaphore release")
	require.Len(t, r.recorder.Started(), 2)
}

func TestObserver_HoldsEnded_KeepsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{Links: true})
	collected := make(chan int, 100)
	const cycles = 30
	for i := range cycles {
		ctx, span := r.under("work")
		load := &[1 << 10]byte{}
		runtime.AddCleanup(load, func(i int) { collected <- i }, i)
		type key struct{}
		ctx = context.WithValue(ctx, key{}, load) // the observer's contexts refer to it
		lock := r.red.Locks().Reentrant("l")
		hold, err := lock.Lock(ctx)
		require.NoError(t, err)
		if i%3 == 0 {
			r.contend(ctx, lock, hold)
		} else {
			require.NoError(t, hold.Unlock(ctx))
		}
		span.End()
		if i%10 == 9 {
			r.recorder.Reset()
		}
	}
	gone := 0
	eventually(t, "what was held is garbage", func() bool {
		runtime.GC()
		for {
			select {
			case <-collected:
				gone++
				continue
			default:
			}
			return gone >= cycles-3 // what was used last may be kept for reuse
		}
	})
}

// point is what one series of an instrument has counted; 0 if there is none. labels are name=value, in the order of the
// names.
func (r *rig) point(name string, labels ...string) float64 {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r.t, r.metrics.Collect(context.Background(), &all))
	is := func(set attribute.Set) bool {
		var have []string
		for _, a := range set.ToSlice() {
			have = append(have, strings.TrimPrefix(string(a.Key), "redlatch.")+"="+a.Value.String())
		}
		return slices.Equal(have, labels)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if is(p.Attributes) {
						return float64(p.Value)
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if is(p.Attributes) {
						return float64(p.Count)
					}
				}
			}
		}
	}
	return 0
}

// contrib/prometheus shows what is counted; package measure feeds both.
func TestMetrics_OfALock_HaveNamesAndLabelsOfOpenTelemetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, redlatchotel.Options{})
	ctx, _ := r.under("work")
	hold, err := r.red.Locks().Reentrant("order:1").Lock(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.point("redlatch.held", "kind=lock"))
	require.NoError(t, hold.Unlock(ctx))
	require.EqualValues(t, 0, r.point("redlatch.held", "kind=lock"))
	require.EqualValues(t, 1, r.point("redlatch.acquisitions", "class=order", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1, r.point("redlatch.acquire.duration", "acquired=true", "class=order", "kind=lock"))

	var before metricdata.ResourceMetrics
	require.NoError(t, r.telemetry.Shutdown(ctx))
	require.NoError(t, r.metrics.Collect(ctx, &before))
	for _, m := range before.ScopeMetrics[0].Metrics {
		require.NotEqual(t, "redlatch.held", m.Name, "nobody is asked any more")
	}
}

func TestLabel_SpanAndText_CarriesBoth(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := trace.ContextWithSpanContext(context.Background(), redlatchotel.SpanContext(parent))
	require.Equal(t, parent, redlatchotel.Label(ctx, ""))
	require.Equal(t, parent+" job 7", redlatchotel.Label(ctx, "job 7"))
	require.Equal(t, "job 7", redlatchotel.Label(context.Background(), "job 7"))
	require.Empty(t, redlatchotel.Label(context.Background(), ""))
	require.Equal(t, "b7ad6b7169203331", redlatchotel.SpanContext(parent+" job 7").SpanID().String())
	require.True(t, redlatchotel.SpanContext(parent).IsSampled())
	for _, none := range []string{"", "job 7", "00-0-0-0", parent[:40]} {
		require.False(t, redlatchotel.SpanContext(none).IsValid(), none)
	}
}
