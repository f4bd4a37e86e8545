package rights_test

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// useOfStocks uses all of a stock.
func useOfStocks(ctx context.Context, c *stock.Client) {
	sale := c.Stock("sale")
	redistest.Got(sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Minute, Retain: time.Minute}))
	won := redistest.Got(sale.Claim(ctx, "ann"))
	redistest.Got(sale.Lookup(ctx, stock.Units{Claimant: "ann"}))
	if won.Won() {
		redistest.Got(sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: won.Ordinal}))
	}
	redistest.Got(sale.Inspect(ctx))
	redistest.Must(sale.EndSale(ctx))
	s := c.Stock("complete")
	redistest.Got(s.Open(ctx,
		stock.Spec{Limit: 3, PerUser: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true}))
	redistest.Got(s.Reserve(ctx, "ann", stock.Request{ID: "late", N: 1}, time.Millisecond))
	redistest.Got(s.Reserve(ctx, "ann", stock.Request{ID: "paid", N: 1}, time.Minute))
	redistest.Got(s.Confirm(ctx, "paid"))
	time.Sleep(5 * time.Millisecond)
	redistest.Got(s.Reap(ctx))
	redistest.Got(s.Claim(ctx, "bob", stock.Request{ID: "order", N: 1}))
	some := redistest.Got(s.ClaimAny(ctx, 1))
	for range 3 { // sold out: the process reads the flag from then on
		redistest.Got(s.ClaimAny(ctx, 1))
		time.Sleep(5 * time.Millisecond)
	}
	redistest.Got(s.Return(ctx, stock.Units{Request: "order"}))
	redistest.Got(s.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error {
		for _, e := range s.Events(ctx, time.Minute) {
			return errors.Join(e, s.Publish(ctx, entries))
		}
		return nil
	}))
	g := c.Group("complete")
	for _, name := range []string{"a", "b"} {
		redistest.Got(g.Stock(name).Open(ctx,
			stock.Spec{Limit: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true}))
	}
	cart := []stock.Line{{Stock: "a", N: 1}, {Stock: "b", N: 1}}
	redistest.Got(g.Reserve(ctx, "ann", stock.CartRequest{ID: "cart", Lines: cart}, time.Minute))
	redistest.Got(g.Confirm(ctx, "cart", cart...))
	redistest.Got(g.Lookup(ctx, "cart", "a", "b"))
	redistest.Got(g.Cancel(ctx, "never", "a", "b"))
	redistest.Must(s.Change(ctx, stock.Change{Limit: 5, PerUser: 5, StartIn: stock.In(0)}))
	redistest.Got(s.Confirm(ctx, "late"))
	redistest.Got(s.Lookup(ctx, stock.Units{Request: "late"}))
	if some.N > 0 {
		redistest.Got(s.Return(ctx, stock.Units{Request: some.Request, Ordinal: some.Ordinal, N: some.N}))
	}
	redistest.Must(s.Change(ctx, stock.Change{Pause: true}))
	redistest.Must(s.Change(ctx, stock.Change{Resume: true}))
	redistest.Must(s.Change(ctx, stock.Change{EndIn: stock.In(time.Minute)}))
	redistest.Got(s.Restore(ctx, func(func(stock.Entry, error) bool) {}))
}
