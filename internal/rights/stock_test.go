package rights_test

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// useOfStocks uses all of a stock.
func useOfStocks(ctx context.Context, c *stock.Client, must func(what string, e error)) {
	sale := c.Stock("sale")
	_, e := sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Minute, Retain: time.Minute})
	must("open", e)
	won, e := sale.Claim(ctx, "ann")
	must("claim", e)
	_, e = sale.Lookup(ctx, stock.Units{Claimant: "ann"})
	must("lookup", e)
	if won.Won() {
		_, e = sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: won.Ordinal})
		must("return", e)
	}
	_, e = sale.Inspect(ctx)
	must("status", e)
	must("close", sale.EndSale(ctx))
	s := c.Stock("complete")
	_, e = s.Open(ctx, stock.Spec{Limit: 3, PerUser: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true})
	must("open with a ledger", e)
	_, e = s.Reserve(ctx, "ann", stock.Request{ID: "late", N: 1}, time.Millisecond)
	must("reserve", e)
	_, e = s.Reserve(ctx, "ann", stock.Request{ID: "paid", N: 1}, time.Minute)
	must("reserve", e)
	_, e = s.Confirm(ctx, "paid")
	must("confirm", e)
	time.Sleep(5 * time.Millisecond)
	_, e = s.Reap(ctx)
	must("reap", e)
	_, e = s.Claim(ctx, "bob", stock.Request{ID: "order", N: 1})
	must("claim once", e)
	some, e := s.ClaimAny(ctx, 1)
	must("claim any", e)
	for range 3 { // sold out: the process reads the flag from then on
		_, e = s.ClaimAny(ctx, 1)
		must("claim what is sold out", e)
		time.Sleep(5 * time.Millisecond)
	}
	_, e = s.Return(ctx, stock.Units{Request: "order"})
	must("return once", e)
	_, e = s.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error {
		for _, e := range s.Events(ctx, time.Minute) {
			must("events", e)
			must("publish", s.Publish(ctx, entries))
			break
		}
		return nil
	})
	must("ledger", e)
	g := c.Group("complete")
	for _, name := range []string{"a", "b"} {
		_, e = g.Stock(name).Open(ctx, stock.Spec{Limit: 3, OpenFor: time.Minute, Retain: time.Minute, Ledger: true})
		must("open a stock of a group", e)
	}
	cart := []stock.Line{{Stock: "a", N: 1}, {Stock: "b", N: 1}}
	_, e = g.Reserve(ctx, "ann", stock.CartRequest{ID: "cart", Lines: cart}, time.Minute)
	must("reserve a cart", e)
	_, e = g.Confirm(ctx, "cart", cart...)
	must("confirm a cart", e)
	_, e = g.Lookup(ctx, "cart", "a", "b")
	must("look up a cart", e)
	_, e = g.Cancel(ctx, "never", "a", "b")
	must("cancel a cart", e)
	must("change", s.Change(ctx, stock.Change{Limit: 5, PerUser: 5, StartIn: stock.In(0)}))
	_, e = s.Confirm(ctx, "late")
	must("confirm late", e)
	_, e = s.Lookup(ctx, stock.Units{Request: "late"})
	must("look up an id", e)
	if some.N > 0 {
		_, e = s.Return(ctx, stock.Units{Request: some.Request, Ordinal: some.Ordinal, N: some.N})
		must("return any", e)
	}
	must("pause", s.Change(ctx, stock.Change{Pause: true}))
	must("resume", s.Change(ctx, stock.Change{Resume: true}))
	must("set end", s.Change(ctx, stock.Change{EndIn: stock.In(time.Minute)}))
	_, e = s.Restore(ctx, func(func(stock.Entry, error) bool) {})
	must("restore", e)
}
