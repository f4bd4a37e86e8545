package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// The first N win, from 1 goroutine and from 256, beside a plain INCR. Every claim is granted, except sold-out.
func BenchmarkClaims(b *testing.B) {
	for _, o := range claims {
		b.Run(o.name, o.run)
	}
}

var claims = func() (out []workload) {
	for _, way := range []struct {
		name string
		of   func(b *testing.B, s *redistest.Server) func(ctx context.Context, n int64) error
	}{
		{"floor-INCR", rawIncr},
		{"Incr", counterIncr},
		{"Claim", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return claim(b, s, stock.Options{}, 1<<53-1, stock.Granted)
		}},
		{"Claim-uncombined", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return claim(b, s, stock.Options{MaxBatch: -1}, 1<<53-1, stock.Granted)
		}},
		{"Claim-sold-out", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return claim(b, s, stock.Options{}, 1, stock.SoldOut)
		}},
		{"ClaimAny", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return claimAny(b, s, stock.Options{})
		}},
		{"ClaimAny-uncombined", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return claimAny(b, s, stock.Options{MaxBatch: -1})
		}},
	} {
		for _, goroutines := range []int{1, 256} {
			out = append(out, workload{fmt.Sprintf("%s/%d", way.name, goroutines), func(b *testing.B) {
				claimWith(b, goroutines, way.of)
			}})
		}
	}
	return out
}()

// Units that are held until they are bought: the reservation alone, and with its confirmation.
func BenchmarkReservations(b *testing.B) {
	for _, o := range reservations {
		b.Run(o.name, o.run)
	}
}

var reservations = func() (out []workload) {
	for _, way := range []struct {
		name    string
		confirm bool
	}{{"Reserve", false}, {"Reserve-Confirm", true}} {
		for _, goroutines := range []int{1, 256} {
			out = append(out, workload{fmt.Sprintf("%s/%d", way.name, goroutines), func(b *testing.B) {
				claimWith(b, goroutines, func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
					return reserve(b, s, way.confirm)
				})
			}})
		}
	}
	return out
}()

func reserve(b *testing.B, s *redistest.Server, confirm bool) func(context.Context, int64) error {
	st := opened(b, s, stock.Options{}, 1<<53-1)
	return func(ctx context.Context, n int64) error {
		id := strconv.FormatInt(n, 10)
		g, err := st.Reserve(ctx, id, stock.Request{ID: "r" + id, N: 1}, time.Hour)
		if err == nil && confirm {
			g, err = st.Confirm(ctx, "r"+id)
		}
		if err == nil && !g.Won() {
			err = fmt.Errorf("reservation %d: %v", n, g.Outcome)
		}
		return err
	}
}

func rawIncr(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
	c := s.Client(b)
	return func(ctx context.Context, _ int64) error { return c.Do(ctx, c.B().Incr().Key("s").Build()).Error() }
}

func dial(b *testing.B, s *redistest.Server) *pubsub.Hub {
	hub, err := pubsub.Dial(s.Option(), pubsub.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { hub.Close(context.Background()) })
	return hub
}

func counterIncr(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
	c, err := rcounter.New(dial(b, s), rcounter.Options{})
	require.NoError(b, err)
	k := c.Counter("s", rcounter.CounterOptions{})
	return func(ctx context.Context, _ int64) error { _, err := k.Incr(ctx); return err }
}

func opened(b *testing.B, s *redistest.Server, o stock.Options, limit int64) *stock.Stock {
	c, err := stock.New(dial(b, s), o)
	require.NoError(b, err)
	st := c.Stock("s")
	_, err = st.Open(context.Background(), stock.Spec{Limit: limit, OpenFor: time.Hour})
	require.NoError(b, err)
	return st
}

func claim(b *testing.B, s *redistest.Server, o stock.Options, limit int64,
	want stock.Outcome) func(context.Context, int64) error {
	st := opened(b, s, o, limit)
	if want == stock.SoldOut {
		_, err := st.Claim(context.Background(), "the first")
		require.NoError(b, err)
	}
	return func(ctx context.Context, n int64) error {
		g, err := st.Claim(ctx, strconv.FormatInt(n, 10))
		if err == nil && g.Outcome != want {
			err = fmt.Errorf("claim %d: %v, want %v", n, g.Outcome, want)
		}
		return err
	}
}

func claimAny(b *testing.B, s *redistest.Server, o stock.Options) func(context.Context, int64) error {
	st := opened(b, s, o, 1<<53-1)
	return func(ctx context.Context, n int64) error {
		g, err := st.ClaimAny(ctx, 1)
		if err == nil && !g.Won() {
			err = fmt.Errorf("claim %d: %v", n, g.Outcome)
		}
		return err
	}
}

func claimWith(b *testing.B, goroutines int,
	of func(*testing.B, *redistest.Server) func(context.Context, int64) error) {
	s := start(b)
	op := of(b, s)
	ctx := context.Background()
	require.NoError(b, op(ctx, 0)) // scripts, connections
	var next atomic.Int64
	var all load.Histogram
	var mu sync.Mutex
	m := newMeter(b, s)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			var h load.Histogram
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				start := time.Now()
				if err := op(ctx, n); err != nil {
					b.Error(err)
					return
				}
				h.Add(time.Since(start))
			}
			mu.Lock()
			all.Merge(h)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	m.report(b, all.Count)
	reportTimes(b, &all)
}
