package bench_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/rlock"
)

// Everybody in one process wants one lock. Under it one INCR; after it a worker stays away for 1 ms, without which a
// lock that lets the last holder take it again at once would look best. An operation is an acquisition.
func BenchmarkContended(b *testing.B) {
	for _, o := range contended {
		b.Run(o.name, o.run)
	}
}

var contended = func() (out []workload) {
	for _, workers := range []int{2, 16, 64, 256} {
		out = append(out, workload{fmt.Sprintf("%d", workers), func(b *testing.B) { contend(b, workers) }})
	}
	return out
}()

func contend(b *testing.B, workers int) {
	s := start(b)
	locks := open(b, s, rlock.Options{})
	c := s.Client(b)
	alone := &load.Alone{}
	run, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ops atomic.Int64
	m := newMeter(b, s)
	b.ResetTimer()
	out := load.Run(run, load.Spec{
		Workers: workers, Think: time.Millisecond, Section: alone,
		Name:    func(int) string { return "contended" },
		Acquire: acquire(locks),
		Inside: func(ctx context.Context) error {
			if ops.Add(1) == int64(b.N) {
				cancel()
			}
			return c.Do(ctx, c.B().Incr().Key("inside").Build()).Error()
		},
	})
	b.StopTimer()
	require.Zero(b, out.Errors, out.FirstError)
	overlaps, lost := alone.Broken()
	require.Zero(b, overlaps)
	require.Zero(b, lost)
	m.report(b, out.Ops, "incr")
	reportTimes(b, &out.Waits)
	b.ReportMetric(load.Jain(out.Shares), "jain")
	b.ReportMetric(float64(slices.Min(out.Shares)), "least")
	b.ReportMetric(float64(slices.Max(out.Shares)), "most")
}
