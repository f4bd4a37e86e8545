package stock_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// rate is how many times a second callers run op in a closed loop.
func rate(b *testing.B, callers int, d time.Duration, op func() error) float64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(began) < d {
				if err := op(); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}

// compare reports by what factor op is faster than base: the median of rounds in which both take turns, since the
// absolute figures of a busy machine swing more than what is to be seen.
func compare(b *testing.B, callers int, base, op func() error) {
	rounds, d := redistest.Sized(1, 21, 21), redistest.Sized(30*time.Millisecond, 120*time.Millisecond,
		120*time.Millisecond)
	rate(b, callers, d, base) // warm
	rate(b, callers, d, op)
	var ratios, bases, ops []float64
	for range rounds {
		x, y := rate(b, callers, d, base), rate(b, callers, d, op)
		ratios, bases, ops = append(ratios, y/x), append(bases, x), append(ops, y)
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(median(ratios), "x")
	b.ReportMetric(median(bases), "base/s")
	b.ReportMetric(median(ops), "op/s")
	b.ReportMetric(0, "ns/op")
}

// The gates: what combining and the local answer buy, each within one run.
func BenchmarkGates(b *testing.B) {
	alone := patient
	alone.MaxBatch = -1
	alone.SoldOutTrust = -1
	together := patient
	together.SoldOutTrust = -1
	fresh := func() func() string {
		var n atomic.Int64
		return func() string { return strconv.FormatInt(n.Add(1), 10) }
	}()
	for _, callers := range []int{1, 16, 256} {
		srv := redistest.Start(b)
		one, all := on(b, srv.Client(b), alone), on(b, srv.Client(b), together)
		opened(b, one, "any", int64(1<<53-1))
		opened(b, one, "user", int64(1<<53-1))
		any := func(c *stock.Client) func() error {
			s := c.Stock("any")
			return func() error { _, err := s.ClaimAny(ctx, 1); return err }
		}
		user := func(c *stock.Client) func() error {
			s := c.Stock("user")
			return func() error { _, err := s.Claim(ctx, fresh()); return err }
		}
		b.Run("bounded/"+strconv.Itoa(callers), func(b *testing.B) { compare(b, callers, any(one), any(all)) })
		b.Run("per-user/"+strconv.Itoa(callers), func(b *testing.B) { compare(b, callers, user(one), user(all)) })
	}
	srv := redistest.Start(b)
	far := redistest.NewProxy(b, srv)
	far.Delay(500*time.Microsecond, 500*time.Microsecond)
	one, all := on(b, far.Server().Client(b), alone), on(b, far.Server().Client(b), together)
	opened(b, one, "s", int64(1<<53-1))
	for _, callers := range []int{256, 2048} {
		b.Run("per-user, 1 ms away/"+strconv.Itoa(callers), func(b *testing.B) {
			s1, s2 := one.Stock("s"), all.Stock("s")
			compare(b, callers, func() error {
				_, err := s1.Claim(ctx, fresh())
				return err
			}, func() error { _, err := s2.Claim(ctx, fresh()); return err })
		})
		b.Run("bounded, 1 ms away/"+strconv.Itoa(callers), func(b *testing.B) {
			s1, s2 := one.Stock("s"), all.Stock("s")
			compare(b, callers, func() error {
				_, err := s1.ClaimAny(ctx, 1)
				return err
			}, func() error { _, err := s2.ClaimAny(ctx, 1); return err })
		})
	}
	p := newPair(b)
	sure := together
	sure.MinReplicas = 1
	one, all = on(b, p.primary.Client(b), together), on(b, p.primary.Client(b), sure)
	opened(b, one, "s", int64(1<<53-1))
	b.Run("per-user, confirmed by a replica/256", func(b *testing.B) {
		s1, s2 := one.Stock("s"), all.Stock("s")
		compare(b, 256, func() error {
			_, err := s1.Claim(ctx, fresh())
			return err
		}, func() error { _, err := s2.Claim(ctx, fresh()); return err })
	})
	out, server := opened(b, on(b, srv.Client(b), patient), "out", 1), on(b, srv.Client(b), alone).Stock("out")
	claimed(b, out, "winner")
	loses := func(s *stock.Stock) func() error {
		return func() error { _, err := s.Claim(stock.Fresh(ctx), fresh()); return err }
	}
	b.Run("sold out, fresh/256", func(b *testing.B) { compare(b, 256, loses(server), loses(out)) })
}
