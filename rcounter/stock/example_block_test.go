package stock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// A process takes a thousand units at once, hands out three, and gives back the rest.
func ExampleStock_Block() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("coupons")
	sale.Open(ctx, stock.Spec{Limit: 5000, OpenFor: time.Hour})

	block, err := sale.Block(ctx, 1000, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if coupon, ok := block.Take(); ok { // no round trip
			fmt.Println("coupon", coupon)
		}
	}
	fmt.Println(block.Left(), "left here, closed:", block.Close(ctx))
	st, _ := sale.Inspect(ctx)
	fmt.Println(st.Sold, "sold")
	// Output:
	// coupon 1
	// coupon 2
	// coupon 3
	// 997 left here, closed: <nil>
	// 3 sold
}

// A process that died with a block: its units stay sold until somebody says how many it had handed out.
func ExampleStock_SettleBlock() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("coupons")
	sale.Open(ctx, stock.Spec{Limit: 5000, OpenFor: time.Hour})
	dead, _ := sale.Block(ctx, 1000, 50*time.Millisecond)
	dead.Take()

	blocks, _ := sale.Blocks(ctx)
	for _, b := range blocks {
		if b.Ended {
			continue
		}
		time.Sleep(time.Until(b.Grant.Until))
		const highest = 1 // coupon that the database knows, of those from b.Grant.Ordinal on
		returned, err := sale.SettleBlock(ctx, b.Grant.Request, highest-b.Grant.Ordinal+1)
		fmt.Println(returned, err)
	}
	// Output:
	// 999 <nil>
}
