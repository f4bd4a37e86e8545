package stock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Units for nobody in particular go back in parts, and the limit may change while the stock sells.
func ExampleStock_ClaimAny() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("leaflets")
	sale.Open(ctx, stock.Spec{Limit: 3, OpenFor: time.Hour})

	g, err := sale.ClaimAny(ctx, 5)
	fmt.Println(g.Outcome, g.N, err)
	back, err := sale.Return(ctx,
		stock.Units{Request: stock.Grant{Outcome: g.Outcome, Request: g.Request, Ordinal: g.Ordinal, N: 1}.Request,
			Ordinal: stock.Grant{Outcome: g.Outcome, Request: g.Request, Ordinal: g.Ordinal, N: 1}.Ordinal,
			N:       stock.Grant{Outcome: g.Outcome, Request: g.Request, Ordinal: g.Ordinal, N: 1}.N})
	fmt.Println(back, err)
	fmt.Println(sale.Change(ctx, stock.Change{Limit: 10}))
	var st stock.State
	if st, err = sale.Inspect(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(st.Phase == stock.PhaseOpen, st.Limit, st.Sold, st.Remaining)
	// Output:
	// granted 3 <nil>
	// 1 <nil>
	// <nil>
	// true 10 2 8
}

// What a claimant has, after an order was cancelled. Bob asks for the first time.
func ExampleStock_Lookup() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})

	sale.Claim(ctx, "ann", stock.Request{ID: "order-1", N: 1})
	back, err := sale.Return(ctx, stock.Units{Request: "order-1"})
	fmt.Println(back, err)
	g, err := sale.Claim(stock.Fresh(ctx), "bob")
	fmt.Println(g.Outcome, err)
	has, err := sale.Lookup(ctx, stock.Units{Claimant: "ann"})
	fmt.Println(has.Won(), err)
	has, err = sale.Lookup(ctx, stock.Units{Claimant: "bob"})
	fmt.Println(has.Won(), err)
	// Output:
	// 1 <nil>
	// granted <nil>
	// false <nil>
	// true <nil>
}

// Every process of a program opens the stock or joins it. A sale is paused and lasts longer, and a report says who has
// what.
func ExampleStock_OpenOrJoin() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	spec := stock.Spec{Limit: 5, PerUser: 3, OpenFor: time.Hour}
	for range 2 {
		st, err := sale.OpenOrJoin(ctx, spec)
		fmt.Println(st.Phase, st.Remaining, err)
	}

	sale.Claim(ctx, "ann")
	sale.Reserve(ctx, "ann", stock.Request{ID: "order-1", N: 2}, time.Minute)
	fmt.Println(sale.Change(ctx, stock.Change{Pause: true}))
	g, err := sale.Claim(ctx, "bob")
	fmt.Println(g.Outcome, err)
	fmt.Println(sale.Change(ctx, stock.Change{EndIn: stock.In(2 * time.Hour)}),
		sale.Change(ctx, stock.Change{Resume: true}))

	var h stock.Holding
	h, err = sale.Lookup(ctx, stock.Units{Request: "order-1"})
	fmt.Println(h.Outcome, h.Claimant, h.N, h.Ordinal == 0, time.Until(h.Until) > 0, err)
	for h, err := range sale.Holders(ctx, "ann") {
		fmt.Println(h.Claimant, h.N, err)
	}
	// Output:
	// open 5 <nil>
	// open 5 <nil>
	// <nil>
	// paused <nil>
	// <nil> <nil>
	// replayed ann 2 true true <nil>
	// ann 1 <nil>
	// ann 2 <nil>
}

// EndSale ends a sale for good, and its answers stay readable. Delete removes them, too.
func ExampleStock_EndSale() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("sneakers")
	sale.Open(ctx, stock.Spec{Limit: 5, OpenFor: time.Hour})
	sale.Claim(ctx, "ann")
	fmt.Println(sale.EndSale(ctx))
	g, err := sale.Claim(ctx, "bob")
	fmt.Println(g.Outcome, err)
	g, err = sale.Claim(ctx, "ann")
	fmt.Println(g.Outcome, g.Ordinal, err)

	fmt.Println(sale.Delete(ctx))
	g, err = sale.Claim(ctx, "ann")
	fmt.Println(g.Outcome, err)
	// Output:
	// <nil>
	// ended <nil>
	// replayed 1 <nil>
	// <nil>
	// not open <nil>
}

// A stock that was lost is opened again, sells nothing, and gets back what the shop's own records say.
func ExampleStock_Restore() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 3, OpenFor: time.Hour, Suspended: true})

	orders := []stock.Entry{{Ordinal: 1, Claimant: "ann"}, {Ordinal: 2, Claimant: "bob"}}
	var done stock.Restored
	done, err := sale.Restore(ctx, func(yield func(stock.Entry, error) bool) {
		for _, o := range orders {
			if !yield(o, nil) {
				return
			}
		}
	})
	fmt.Println(done.Added, err)
	g, _ := sale.Claim(ctx, "bob")
	fmt.Println(g.Outcome, g.Ordinal)
	g, _ = sale.Claim(ctx, "cid")
	fmt.Println(g.Outcome, g.Ordinal)
	// Output:
	// 2 <nil>
	// replayed 2
	// granted 3
}

// One process, or each, gives back what customers have held for too long, and moves the ledger on.
func ExampleStock_KeepReaped() {
	c, end := demoClient()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour, Ledger: true})

	moved := make(chan string, 2)
	go sale.KeepReaped(ctx, time.Second)
	go sale.KeepLedger(ctx, 10*time.Millisecond, 100, func(_ context.Context, entries []stock.Entry) error {
		for _, e := range entries {
			moved <- e.Claimant
		}
		return nil
	})
	sale.Claim(ctx, "ann")
	fmt.Println(<-moved)
	ended, err := sale.Reap(ctx)
	fmt.Println(ended, err)
	stop()
	// Output:
	// ann
	// 0 <nil>
}

// What the server answers is counted; a reservation is the same kind of answer.
func ExampleObserver() {
	hub, end := demo()
	defer end()
	events := map[redlatch.EventKind]int{}
	var metrics stock.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		if events[e.Kind]++; e.Kind == redlatch.EventClaimed {
			fmt.Println(e.Name, e.Outcome, e.N)
		}
		if e.Kind == redlatch.EventBackgroundFailed {
			log.Println(e.Name, e.Err)
		}
		return ctx
	}
	stocks, err := stock.New(hub, stock.Options{CallTimeout: 10 * time.Second, Observer: metrics})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer stocks.Close(ctx)
	sale := stocks.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 2, OpenFor: time.Hour})
	sale.Claim(ctx, "ann")
	var held stock.Grant
	if held, err = sale.Reserve(ctx, "bob", stock.Request{ID: "order-1", N: 1}, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Println(held.Won(), held.N, events[redlatch.EventClaimed])
	now := stocks.Stats()
	fmt.Println(now.SharedRequests, "claims in", now.SharedCalls, "shared calls")
	// Output:
	// tickets granted 1
	// tickets granted 1
	// true 1 2
	// 0 claims in 0 shared calls
}

// A live page hears of every entry that a mover of the ledger has published, and looks at the stock itself at every
// gap.
func ExampleStock_Events() {
	c, end := demoClient()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sale := c.Stock("tickets")
	sale.Open(ctx, stock.Spec{Limit: 10, OpenFor: time.Hour, Ledger: true})
	sale.Claim(ctx, "ann")

	var e stock.LedgerEvent
	var err error
	for e, err = range sale.Events(ctx, time.Minute) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Gap { // the first one comes when the page is subscribed
			st, err := sale.Inspect(ctx)
			fmt.Println(st.Remaining, "left", err)
			go sale.KeepLedger(ctx, time.Second, 500, func(ctx context.Context, entries []stock.Entry) error {
				// here they go into a database; an error of Publish does not stop a mover
				if err := sale.Publish(ctx, entries); err != nil {
					log.Println(err)
				}
				return nil
			})
			continue
		}
		break
	}
	fmt.Println(e.Serial, e.Kind, e.N, e.Claimant)
	// Output:
	// 9 left <nil>
	// 1 grant 1 ann
}
