package stock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// Ten units in three shards, and a crowd: exactly ten win, wherever the units lay.
func ExampleSharded() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	sale := c.Sharded("phones", 3) // one value, kept; the same number everywhere
	if _, err := sale.Open(ctx, stock.Spec{Limit: 10, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	counts := map[stock.Outcome]int{}
	for i := range 25 {
		g, err := sale.Claim(ctx, fmt.Sprintf("user %d", i))
		if err != nil {
			log.Fatal(err) // no answer: asking again is safe
		}
		counts[g.Outcome]++
	}
	fmt.Println(counts[stock.Granted], "granted,", counts[stock.SoldOut], "sold out")
	st, err := sale.Inspect(ctx)
	fmt.Println(st.Sold, st.Remaining, err)
	// Output:
	// 10 granted, 15 sold out
	// 10 0 <nil>
}
