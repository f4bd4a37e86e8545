package sale_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rcounter/stock/sale"
)

// BenchmarkBesideStock runs what both packages do, on one server: only the ratios count.
func BenchmarkBesideStock(b *testing.B) {
	raw := redistest.Start(b, "--save", "").Client(b)
	orders := on(b, raw, sale.Options{CallTimeout: 10 * time.Second})
	old, err := stock.New(rig.Hub(b, raw), stock.Options{CallTimeout: 10 * time.Second})
	require.NoError(b, err)
	b.Cleanup(func() { old.Close(ctx) })
	var n atomic.Int64
	id := func() string { return fmt.Sprint("o", n.Add(1)) }
	for _, callers := range []int{1, 16, 256} {
		s := opened(b, orders, fmt.Sprint("s", callers), sale.Spec{Limit: 1 << 50, OpenFor: time.Hour})
		t := old.Stock(fmt.Sprint("s", callers))
		_, err := t.Open(ctx, stock.Spec{Limit: 1 << 50, OpenFor: time.Hour})
		require.NoError(b, err)
		s2 := opened(b, orders, fmt.Sprint("r", callers), sale.Spec{Limit: 1 << 50, OpenFor: time.Hour})
		t2 := old.Stock(fmt.Sprint("r", callers))
		_, err = t2.Open(ctx, stock.Spec{Limit: 1 << 50, OpenFor: time.Hour})
		require.NoError(b, err)
		for _, what := range []struct {
			name string
			do   func() error
		}{
			{"buy/stock", func() error { _, err := t.Claim(ctx, id()); return err }},
			{"buy/sale", func() error { _, err := s.Buy(ctx, sale.Order{User: id()}); return err }},
			{"anyone/stock", func() error { _, err := t.ClaimAny(ctx, 1); return err }},
			{"anyone/sale", func() error { _, err := s.Buy(ctx, sale.Order{Anyone: true}); return err }},
			{"pay/stock", func() error {
				o := id()
				if _, err := t2.Reserve(ctx, o, stock.Request{ID: o, N: 1}, time.Hour); err != nil {
					return err
				}
				_, err := t2.Confirm(ctx, o)
				return err
			}},
			{"pay/sale", func() error {
				o := id()
				if _, err := s2.Reserve(ctx, sale.Order{ID: o, User: o}, time.Hour); err != nil {
					return err
				}
				_, err := s2.Pay(ctx, o)
				return err
			}},
		} {
			b.Run(fmt.Sprint(what.name, "/", callers), func(b *testing.B) {
				b.SetParallelism(max(1, callers/2))
				if callers == 1 {
					for b.Loop() {
						if err := what.do(); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := what.do(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
