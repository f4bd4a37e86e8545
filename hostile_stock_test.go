package redlatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func stockScenes(c *stock.Client) []hostileCase {
	bg := context.Background()
	spec := stock.Spec{Limit: 100, PerUser: 5, OpenFor: time.Hour, Retain: time.Hour, Ledger: true}
	acts := func(name string) []act {
		x := c.Stock(name)
		return []act{
			does("Inspect", func(ctx context.Context) error { return second(x.Inspect(ctx)) }),
			does("Lookup", func(ctx context.Context) error { return second(x.Lookup(ctx, stock.Units{Claimant: "ann"})) }),
			does("LookupID", func(ctx context.Context) error { return second(x.Lookup(ctx, stock.Units{Request: "cart"})) }),
			does("Holders", func(ctx context.Context) error {
				for _, err := range x.Holders(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			}),
			does("Claim", func(ctx context.Context) error { return second(x.Claim(ctx, "ann")) }),
			does("Claim another", func(ctx context.Context) error { return second(x.Claim(ctx, "eve")) }),
			does("ClaimOnce", func(ctx context.Context) error {
				return second(x.Claim(ctx, "bob", stock.Request{ID: "order", N: 2}))
			}),
			does("ClaimAny", func(ctx context.Context) error {
				g, err := x.ClaimAny(ctx, 2)
				if err == nil {
					_, err = x.Return(ctx, stock.Units{Request: g.Request, Ordinal: g.Ordinal, N: g.N})
				}
				return err
			}),
			does("Extend", func(ctx context.Context) error { return second(x.Extend(ctx, "cart", time.Minute)) }),
			does("Reserve", func(ctx context.Context) error {
				return second(x.Reserve(ctx, "joe", stock.Request{ID: "cart2", N: 1}, time.Minute))
			}),
			does("Confirm", func(ctx context.Context) error { return second(x.Confirm(ctx, "cart")) }),
			does("Cancel", func(ctx context.Context) error { return second(x.Cancel(ctx, "cart")) }),
			does("Return", func(ctx context.Context) error {
				return second(x.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1}))
			}),
			does("ReturnOnce", func(ctx context.Context) error { return second(x.Return(ctx, stock.Units{Request: "order"})) }),
			does("Reap", func(ctx context.Context) error { return second(x.Reap(ctx)) }),
			does("Ledger", func(ctx context.Context) error {
				return second(x.Ledger(ctx, 10, func(context.Context, []stock.Entry) error { return nil }))
			}),
			does("Change", func(ctx context.Context) error { return x.Change(ctx, stock.Change{PerUser: 5, Pause: true}) }),
			does("Resume", func(ctx context.Context) error { return x.Change(ctx, stock.Change{Resume: true}) }),
			does("Resize", func(ctx context.Context) error { return x.Change(ctx, stock.Change{Limit: 120}) }),
			does("SetEnd", func(ctx context.Context) error { return x.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}) }),
			does("OpenOrJoin", func(ctx context.Context) error { return second(x.OpenOrJoin(ctx, spec)) }),
			{name: "Restore", parts: true, do: func(ctx context.Context) error {
				return second(x.Restore(ctx, func(func(stock.Entry, error) bool) {}))
			}},
			does("EndSale", x.EndSale),
			does("Delete", x.Delete),
		}
	}
	works := func(ctx context.Context, name string) error { return second(c.Stock(name).Claim(ctx, "zoe")) }
	return []hostileCase{{"open", func(t testing.TB, name string) ([]act, func()) {
		x := c.Stock(name)
		require.NoError(t, second(x.Open(bg, spec)))
		require.NoError(t, second(x.Claim(bg, "ann")))
		require.NoError(t, second(x.Claim(bg, "bob", stock.Request{ID: "order", N: 2})))
		require.NoError(t, second(x.ClaimAny(bg, 2)))
		require.NoError(t, second(x.Reserve(bg, "cat", stock.Request{ID: "cart", N: 2}, time.Minute)))
		return acts(name), func() {}
	}, works}}
}

func TestHostileValuesOfStocksAreErrWrongType(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	defer s.report(t)
	c, err := stock.New(s.hub, stock.Options{CallTimeout: calls, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	s.suffer(t, "stock", stockScenes(c), redistest.Sized(40, 30, 1))
}
