package redlatchotel

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/measure"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// scope is the instrumentation scope of meters and tracers.
const scope = "github.com/redlatch/redlatch/contrib/otel"

// Options of New. The zero value is good.
type Options struct {
	// TracerProvider makes the tracer. Defaults to the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the meter. Defaults to the global one.
	MeterProvider metric.MeterProvider
	// Class makes the class of a name, such as the part before its first colon. kind is lock, election, semaphore,
	// counter, stock, redpacket or limiter. It runs where the event happens, for every event, so it must return at once.
	// "" counts as "other". Defaults to "all" for every name.
	Class func(kind, name string) string
	// MaxClasses is how many classes of each kind are counted separately, the first that come; later ones count as
	// "other". Defaults to 50, also if it is not positive.
	MaxClasses int
	// Names puts the name of the lock or semaphore into the spans. Metrics never have it.
	Names bool
	// Links has the span of an acquisition that waits linked to its holders': see "Links to the holder" in the package
	// comment. It costs a call to the server for an acquisition that waits, of each client that is watched, and needs the
	// rights of Inspect.
	Links bool
	// WaitBounds and HoldBounds are the upper bounds, in seconds, of the histograms of waiting (and of calls) and of
	// holding, where no View says something else. Default to 16 bounds from 250 us to 100 s, and from 1 ms to an hour.
	WaitBounds, HoldBounds []float64
}

// Telemetry is what tells OpenTelemetry. It is safe for concurrent use. Make one and share it.
type Telemetry struct {
	observers *measure.Observers
	watched   measure.Watched
	meters    *meters
	spans     *spans

	mu         sync.Mutex
	locks      []*rlock.Client
	semaphores []*rsemaphore.Client
}

// New returns what observes nothing yet: see [Telemetry.Instrument]. The error is that of a MeterProvider which refuses
// an instrument.
func New(o Options) (*Telemetry, error) {
	o.TracerProvider = cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	o.MeterProvider = cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	t := &Telemetry{}
	m, err := newMeters(o.MeterProvider.Meter(scope), o, &t.watched)
	if err != nil {
		return nil, err
	}
	t.meters, t.observers = m, measure.NewObservers(m, o.Class, o.MaxClasses)
	t.spans = &spans{tracer: o.TracerProvider.Tracer(scope), class: t.observers.Class, names: o.Names}
	if o.Links {
		t.spans.finder = &finder{clients: t.clients}
	}
	return t, nil
}

// Instrument returns o with the Observer of t, after the one that o has already.
func (t *Telemetry) Instrument(o redlatch.Options) redlatch.Options {
	o.Observer = o.Observer.And(t.Observe)
	return o
}

// Observe is the Observer for the Options of a package, for programs that use the packages alone. For others Instrument
// does.
func (t *Telemetry) Observe(ctx context.Context, e redlatch.Event) context.Context {
	t.observers.Observe(ctx, e)
	return t.spans.observe(ctx, e)
}

// Watch has the clients of red, and its hub, asked for their Stats whenever metrics are collected, and its locks and
// semaphores for holders, if Options.Links is set. They are asked until Shutdown. Several clients are added up.
func (t *Telemetry) Watch(red *redlatch.Client) {
	t.WatchHub(red.Hub())
	t.WatchLocks(red.Locks())
	t.WatchSemaphores(red.Semaphores())
}

// WatchLocks is Watch for a program that uses the packages alone, and so are the next two.
func (t *Telemetry) WatchLocks(l *rlock.Client) {
	t.watched.AddLocks(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.locks = append(t.locks, l)
}

// WatchSemaphores is Watch for one client.
func (t *Telemetry) WatchSemaphores(s *rsemaphore.Client) {
	t.watched.AddSemaphores(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.semaphores = append(t.semaphores, s)
}

// WatchHub is Watch for a hub.
func (t *Telemetry) WatchHub(h *pubsub.Hub) { t.watched.AddHub(h) }

// clients are those that are watched.
func (t *Telemetry) clients() ([]*rlock.Client, []*rsemaphore.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locks[:len(t.locks):len(t.locks)], t.semaphores[:len(t.semaphores):len(t.semaphores)]
}

// Shutdown has no client asked for its Stats any more, looks up no more holders, and waits until ctx ends for look-ups
// under way, at most a second. Observers that clients still have go on telling the providers. Call it before the
// providers are shut down.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	return errors.Join(t.meters.unregister(), t.spans.finder.close(ctx))
}
