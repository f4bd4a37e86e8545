package stock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// A cart of two stocks is held as one until it is paid.
func ExampleGroup() {
	stocks, end := demoClient()
	defer end()
	ctx := context.Background()

	sale := stocks.Group("sale")
	for name, limit := range map[string]int64{"shirt": 10, "cap": 1} {
		if _, err := sale.Stock(name).Open(ctx, stock.Spec{Limit: limit, PerUser: 5, OpenFor: time.Hour}); err != nil {
			fmt.Println(err)
		}
	}
	set := []stock.Line{{Stock: "shirt", N: 2}, {Stock: "cap", N: 1}}
	var cart stock.Cart
	cart, err := sale.Reserve(ctx, "ann", stock.CartRequest{ID: "order-1", Lines: set}, 15*time.Minute)
	fmt.Println(cart.Outcome, err)
	// there is one cap
	refused, err := sale.Reserve(ctx, "bob", stock.CartRequest{ID: "order-2", Lines: set}, 15*time.Minute)
	fmt.Println(refused.Outcome, err)
	show := func(line stock.LineGrant) {
		fmt.Printf("  %s: %q, %d left\n", line.Stock, line.Grant.Outcome, line.Grant.Remaining)
	}
	for _, line := range refused.Lines {
		show(line)
	}
	cart, err = sale.Confirm(ctx, "order-1", set...) // she paid
	fmt.Println(cart.Outcome, cart.Lines[0].Stock, cart.Lines[0].Grant.Ordinal, cart.Lines[1].Stock,
		cart.Lines[1].Grant.Ordinal, err)
	// Output:
	// granted <nil>
	// sold out <nil>
	//   cap: "sold out", 0 left
	//   shirt: "", 8 left
	// granted cap 1 shirt 1 <nil>
}

// The verbs of a cart: cancel, and confirm what is late.
func ExampleGroup_Confirm_late() {
	stocks, end := demoClient()
	defer end()
	ctx := context.Background()

	sale := stocks.Group("sale")
	for _, name := range []string{"shirt", "cap"} {
		if _, err := sale.Stock(name).Open(ctx, stock.Spec{Limit: 1, PerUser: 1, OpenFor: time.Hour}); err != nil {
			fmt.Println(err)
		}
	}
	set := []stock.Line{{Stock: "shirt", N: 1}, {Stock: "cap", N: 1}}
	cart, err := sale.Reserve(ctx, "ann", stock.CartRequest{ID: "order-1", Lines: set}, 15*time.Minute)
	fmt.Println(cart.Won(), err)
	back, err := sale.Cancel(ctx, "order-1", "shirt", "cap")
	fmt.Println(back, err)

	_, err = sale.Reserve(ctx, "bob", stock.CartRequest{ID: "order-2", Lines: set}, time.Millisecond)
	fmt.Println(err)
	time.Sleep(10 * time.Millisecond) // he pays late
	_, err = sale.Stock("cap").Claim(ctx, "cid")
	fmt.Println(err)
	late, err := sale.Confirm(ctx, "order-2", set...)
	fmt.Println(late.Won(), err)
	for _, line := range late.Lines {
		fmt.Println(" ", line.Stock, line.Grant.Outcome)
	}
	// Output:
	// true <nil>
	// true <nil>
	// <nil>
	// <nil>
	// false <nil>
	//   cap expired
	//   shirt granted
}
