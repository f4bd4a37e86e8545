package stock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// Two seats are held while the buyer pays, and sold when the payment is through.
func ExampleStock_Reserve() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	seats := c.Stock("seats")
	if _, err := seats.Open(ctx, stock.Spec{Limit: 3, PerUser: 2, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}

	r, err := seats.Reserve(ctx, "ann", stock.Request{ID: "cart-1", N: 2}, 15*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Outcome, r.N, "held,", r.Remaining, "left")
	r, err = seats.Reserve(ctx, "bob", stock.Request{ID: "cart-2", N: 2}, 15*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Outcome, "with", r.Remaining, "left: all or none")

	for range 2 { // a payment provider that calls twice
		g, err := seats.Confirm(ctx, "cart-1")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(g.Outcome, "seats", g.Ordinal, "to", g.Ordinal+g.N-1)
	}
	if _, err := seats.Cancel(ctx, "cart-3"); err != nil { // overtakes what it cancels
		log.Fatal(err)
	}
	r, err = seats.Reserve(ctx, "cid", stock.Request{ID: "cart-3", N: 1}, 15*time.Minute)
	fmt.Println(r.Outcome, err)
	// Output:
	// granted 2 held, 1 left
	// sold out with 1 left: all or none
	// granted seats 1 to 2
	// replayed seats 1 to 2
	// cancelled <nil>
}

// Payments come late, or for only some of the seats, and customers change their minds.
func ExampleStock_Confirm_late() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	seats := c.Stock("concert")
	if _, err := seats.Open(ctx, stock.Spec{Limit: 5, PerUser: 5, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	show := func(what string, g stock.Grant, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(what, g.Outcome, "seats:", g.N, "missing:", g.Missing)
	}
	g, err := seats.Reserve(ctx, "ann", stock.Request{ID: "ann", N: 3}, time.Millisecond)
	show("ann reserves:", g, err)
	time.Sleep(2 * time.Millisecond)
	g, err = seats.Reserve(ctx, "bob", stock.Request{ID: "bob", N: 4, UpTo: true}, time.Minute) // ann's time is over
	show("bob reserves:", g, err)
	g, err = seats.Extend(ctx, "bob", time.Hour)
	show("he has more time:", g, err)
	g, err = seats.Confirm(ctx, "bob", stock.Paid(3))
	show("he pays for three:", g, err)
	g, err = seats.Confirm(ctx, "ann")
	show("ann has paid:", g, err)
	fmt.Println("that is decided:", g.Outcome.Final())
	back, err := seats.Return(ctx, stock.Units{Request: "bob", Keep: 1})
	fmt.Println("bob keeps one, back:", back, err)
	// Output:
	// ann reserves: granted seats: 3 missing: 0
	// bob reserves: granted seats: 4 missing: 0
	// he has more time: granted seats: 4 missing: 0
	// he pays for three: granted seats: 3 missing: 0
	// ann has paid: granted seats: 2 missing: 1
	// that is decided: true
	// bob keeps one, back: 2 <nil>
}

// An order claims all or none; the same order again gets the same ones.
func ExampleStock_Claim_request() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("sale")
	if _, err := sale.Open(ctx, stock.Spec{Limit: 100, PerUser: 5, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"order-1", "order-2", "order-1"} {
		g, err := sale.Claim(ctx, "ann", stock.Request{ID: order, N: 3})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(order, g.Outcome, g.N)
	}
	g, err := sale.Claim(ctx, "ann", stock.Request{ID: "order-2", N: 3, UpTo: true}) // fewer will do
	fmt.Println("order-2", g.Outcome, g.N, "missing", g.Missing, err)
	// Output:
	// order-1 granted 3
	// order-2 user limit 0
	// order-1 replayed 3
	// order-2 granted 2 missing 1 <nil>
}

// Every sale goes into the ledger in the script that makes it, and from there into a database, where rows are only ever
// added: whatever comes again, or late, changes nothing. Module contrib/ledger does it in SQL.
func ExampleStock_Ledger() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("sale")
	epoch, err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob"} {
		if _, err := sale.Claim(ctx, user); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := sale.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1}); err != nil {
		log.Fatal(err)
	}
	type key struct{ epoch, serial int64 } // primary key (stock, epoch, serial)
	moves := map[key]stock.Entry{}
	n, err := sale.Ledger(ctx, 1000, func(_ context.Context, entries []stock.Entry) error { // one transaction
		for _, e := range entries {
			k := key{e.Epoch, e.Serial}
			if row, there := moves[k]; there && row != e { // insert … on conflict do nothing, and look what is there
				return fmt.Errorf("serial %d given twice: %+v and %+v", e.Serial, row, e)
			}
			moves[k] = e
		}
		return nil // after the commit: now the entries are removed
	})
	fmt.Println(n, err)
	has := map[int64]string{} // a view: what was granted and not returned
	for serial := range int64(len(moves)) {
		switch e := moves[key{epoch, serial + 1}]; e.Kind {
		case stock.KindGrant:
			has[e.Ordinal] = e.Claimant
		case stock.KindReturn:
			delete(has, e.Ordinal)
		}
	}
	fmt.Println(has)
	// Output:
	// 3 <nil>
	// map[2:bob]
}
