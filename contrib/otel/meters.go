package redlatchotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redlatch/redlatch/internal/measure"
)

// meters is the measure.Sink, and asks the clients that are watched when metrics are collected.
type meters struct {
	counters   map[*measure.Instrument]metric.Int64Counter
	histograms map[*measure.Instrument]metric.Float64Histogram
	asked      map[*measure.Instrument]metric.Int64Observable
	sets       sync.Map // of attributes, by series: made once, because every event has one
	callback   metric.Registration
}

// series are an instrument and the values of its labels, of which it has three at most.
type series struct {
	of     *measure.Instrument
	labels [3]string
}

func newMeters(meter metric.Meter, o Options, watched *measure.Watched) (*meters, error) {
	m := &meters{counters: map[*measure.Instrument]metric.Int64Counter{},
		histograms: map[*measure.Instrument]metric.Float64Histogram{},
		asked:      map[*measure.Instrument]metric.Int64Observable{}}
	var all []error
	var asked []metric.Observable
	for _, i := range measure.Fed {
		var err error
		if i.Type == measure.Counter {
			m.counters[i], err = meter.Int64Counter("redlatch."+i.Name, metric.WithDescription(i.Help), metric.WithUnit(i.Unit))
		} else {
			m.histograms[i], err = meter.Float64Histogram("redlatch."+i.Name+".duration", metric.WithDescription(i.Help),
				metric.WithUnit(i.Unit), metric.WithExplicitBucketBoundaries(i.Bounds(o.WaitBounds, o.HoldBounds)...))
		}
		all = append(all, err)
	}
	for _, i := range measure.Asked {
		var err error
		var v metric.Int64Observable
		if i.Type == measure.Total {
			v, err = meter.Int64ObservableCounter("redlatch."+i.Name, metric.WithDescription(i.Help), metric.WithUnit(i.Unit))
		} else {
			v, err = meter.Int64ObservableUpDownCounter("redlatch."+i.Name, metric.WithDescription(i.Help),
				metric.WithUnit(i.Unit))
		}
		m.asked[i] = v
		all, asked = append(all, err), append(asked, v)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	var err error
	m.callback, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		watched.Each(func(i *measure.Instrument, v int64, labels ...string) {
			to.ObserveInt64(m.asked[i], v, m.attributes(i, labels))
		})
		return nil
	}, asked...)
	return m, err
}

// Add implements measure.Sink.
func (m *meters) Add(ctx context.Context, i *measure.Instrument, n float64, labels ...string) {
	m.counters[i].Add(ctx, int64(n), m.attributes(i, labels))
}

// Record implements measure.Sink.
func (m *meters) Record(ctx context.Context, i *measure.Instrument, seconds float64, labels ...string) {
	m.histograms[i].Record(ctx, seconds, m.attributes(i, labels))
}

// attributes are the labels as OpenTelemetry has them. There are as many sets as series, which the bound on classes
// bounds.
func (m *meters) attributes(i *measure.Instrument, labels []string) metric.MeasurementOption {
	key := series{of: i}
	copy(key.labels[:], labels)
	if set, ok := m.sets.Load(key); ok {
		return set.(metric.MeasurementOption)
	}
	all := make([]attribute.KeyValue, len(labels))
	for n, name := range i.Labels {
		switch v := labels[n]; v {
		case "true", "false":
			all[n] = attribute.Bool("redlatch."+name, v == "true")
		default:
			all[n] = attribute.String("redlatch."+name, v)
		}
	}
	set, _ := m.sets.LoadOrStore(key, metric.WithAttributeSet(attribute.NewSet(all...)))
	return set.(metric.MeasurementOption)
}

func (m *meters) unregister() error { return m.callback.Unregister() }
