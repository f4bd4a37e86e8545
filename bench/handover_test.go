package bench_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/rlock"
)

// From one calling Unlock to the other, who has waited for some milliseconds, holding. ns/op is the mean of that.
func BenchmarkHandover(b *testing.B) {
	for _, o := range handovers {
		b.Run(o.name, o.run)
	}
}

var handovers = []workload{
	{"two-clients", func(b *testing.B) { handover(b, 2) }},
	{"one-client", func(b *testing.B) { handover(b, 1) }},
}

func handover(b *testing.B, clients int) {
	s := start(b)
	holder := open(b, s, rlock.Options{}).Reentrant("handover")
	waiter := holder
	if clients == 2 {
		waiter = open(b, s, rlock.Options{}).Reentrant("handover")
	}
	ctx := context.Background()
	hold, err := holder.Lock(ctx)
	require.NoError(b, err)
	type got struct {
		hold *rlock.Hold
		at   time.Time
		err  error
	}
	pass := func() time.Duration {
		acquired := make(chan got, 1)
		go func() {
			h, err := waiter.Lock(ctx)
			acquired <- got{h, time.Now(), err}
		}()
		time.Sleep(5*time.Millisecond + rand.N(20*time.Millisecond))
		start := time.Now()
		require.NoError(b, hold.Unlock(ctx))
		g := <-acquired
		require.NoError(b, g.err)
		hold, holder, waiter = g.hold, waiter, holder
		return g.at.Sub(start)
	}
	pass() // subscriptions
	pass()
	var h load.Histogram
	var sum time.Duration
	m := newMeter(b, s)
	for range b.N {
		d := pass()
		h.Add(d)
		sum += d
	}
	m.report(b, h.Count)
	reportTimes(b, &h)
	b.ReportMetric(float64(sum)/float64(b.N), "ns/op")
	require.NoError(b, hold.Unlock(ctx))
}
