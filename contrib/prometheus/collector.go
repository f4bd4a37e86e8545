package redlatchprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/measure"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Options of a Collector. The zero value is good.
type Options struct {
	// Class makes the label class of a name, such as the part before its first colon. kind is lock, election, semaphore,
	// counter, stock, redpacket or limiter. It runs where the event happens, for every event, so it must return at once.
	// "" counts as "other". Defaults to "all" for every name.
	Class func(kind, name string) string
	// MaxClasses is how many classes of each kind get series of their own, the first that come; later ones count as
	// "other". Defaults to 50, also if it is not positive.
	MaxClasses int
	// WaitBuckets and HoldBuckets are the upper bounds, in seconds, of the histograms of waiting (and of calls) and of
	// holding. Default to 16 bounds from 250 us to 100 s, and from 1 ms to an hour.
	WaitBuckets, HoldBuckets []float64
}

// Collector is a prometheus.Collector of what the clients do that it observes. It is safe for concurrent use. Its
// metrics begin at 0 when it is made.
type Collector struct {
	all        []prometheus.Collector
	counters   map[*measure.Instrument]*prometheus.CounterVec
	histograms map[*measure.Instrument]*prometheus.HistogramVec
	asked      map[*measure.Instrument]*prometheus.Desc

	observers *measure.Observers
	watched   measure.Watched
}

// New returns a Collector that observes nothing yet: see [Collector.Instrument].
func New(o Options) *Collector {
	c := &Collector{counters: map[*measure.Instrument]*prometheus.CounterVec{},
		histograms: map[*measure.Instrument]*prometheus.HistogramVec{},
		asked:      map[*measure.Instrument]*prometheus.Desc{}}
	for _, i := range measure.Fed {
		if i.Type == measure.Counter {
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(i), Help: i.Help}, i.Labels)
			c.counters[i], c.all = v, append(c.all, v)
			continue
		}
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name(i), Help: i.Help,
			Buckets: i.Bounds(o.WaitBuckets, o.HoldBuckets)}, i.Labels)
		c.histograms[i], c.all = v, append(c.all, v)
	}
	for _, i := range measure.Asked {
		c.asked[i] = prometheus.NewDesc(name(i), i.Help, i.Labels, nil)
	}
	c.observers = measure.NewObservers(sink{c}, o.Class, o.MaxClasses)
	return c
}

// Instrument returns o with the Collector's Observer, after the one that o has already.
func (c *Collector) Instrument(o redlatch.Options) redlatch.Options {
	o.Observer = o.Observer.And(c.Observe)
	return o
}

// Observe is the Observer for the Options of a package, for programs that use the packages alone. For others Instrument
// does.
func (c *Collector) Observe(ctx context.Context, e redlatch.Event) context.Context {
	return c.observers.Observe(ctx, e)
}

// name is what Prometheus calls an instrument.
func name(i *measure.Instrument) string {
	switch i.Type {
	case measure.Counter, measure.Total:
		return "redlatch_" + i.Name + "_total"
	case measure.Duration:
		return "redlatch_" + i.Name + "_seconds"
	}
	return "redlatch_" + i.Name
}

// sink is a measure.Sink.
type sink struct{ c *Collector }

func (s sink) Add(_ context.Context, i *measure.Instrument, n float64, labels ...string) {
	s.c.counters[i].WithLabelValues(labels...).Add(n)
}

func (s sink) Record(_ context.Context, i *measure.Instrument, seconds float64, labels ...string) {
	s.c.histograms[i].WithLabelValues(labels...).Observe(seconds)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.all {
		v.Describe(to)
	}
	for _, i := range measure.Asked {
		to <- c.asked[i]
	}
}

// Collect implements prometheus.Collector. It asks the clients and hubs that are watched for their Stats, and no
// server.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.all {
		v.Collect(to)
	}
	c.watched.Each(func(i *measure.Instrument, v int64, labels ...string) {
		kind := prometheus.GaugeValue
		if i.Type == measure.Total {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(c.asked[i], kind, float64(v), labels...)
	})
}

// Watch has every scrape ask the clients of red, and its hub, for their Stats. It asks them for as long as the
// Collector is there: what a closed client has counted does not go. Several clients are added up.
func (c *Collector) Watch(red *redlatch.Client) { c.watched.Add(red) }

// WatchLocks is Watch for a program that uses the packages alone, and so are the next two.
func (c *Collector) WatchLocks(l *rlock.Client) { c.watched.AddLocks(l) }

// WatchSemaphores is Watch for one client.
func (c *Collector) WatchSemaphores(s *rsemaphore.Client) { c.watched.AddSemaphores(s) }

// WatchHub is Watch for a hub.
func (c *Collector) WatchHub(h *pubsub.Hub) { c.watched.AddHub(h) }
