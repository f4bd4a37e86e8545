package rcounter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/rcounter"
)

// Points for an order: a queue that delivers it twice does not give them twice.
func ExampleCounter_AddOnce() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	points := c.Counter("points:ann", rcounter.CounterOptions{Remember: 24 * time.Hour})
	for _, order := range []string{"order-1", "order-2", "order-1"} {
		v, replayed, err := points.AddOnce(ctx, order, 10)
		if err != nil {
			log.Fatal(err) // asking again is safe
		}
		fmt.Println(order, v, replayed)
	}
	v, err := points.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v)
	// Output:
	// order-1 10 false
	// order-2 20 false
	// order-1 10 true
	// 20
}

// A number on a page that everybody looks at.
func ExampleCounter_Cached() {
	c, end := demoClient() // whose server has no client-side caching: a plain Get
	defer end()
	ctx := context.Background()
	views := c.Counter("views", rcounter.CounterOptions{})
	if _, err := views.Add(ctx, 1234); err != nil {
		log.Fatal(err)
	}
	v, err := views.Cached(ctx, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v)
	// Output:
	// 1234
}
