package rcounter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
)

// demo is a hub on an embedded server; a program would call pubsub.Dial with its server's address.
func demo() (h *pubsub.Hub, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
		DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	if h, err = pubsub.New(client, pubsub.Options{}); err != nil {
		log.Fatal(err)
	}
	return h, func() { h.Close(context.Background()); client.Close(); server.Close() }
}

// demoClient is a client on an embedded server, which may take its time on a busy machine.
func demoClient() (c *rcounter.Client, end func()) {
	hub, end := demo()
	c, err := rcounter.New(hub, rcounter.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return c, end
}

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

// The INCR form of first N win: the value is the ordinal.
func ExampleCounter_Incr() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	entries := c.Counter("draw:entries", rcounter.CounterOptions{Max: rcounter.Bound(2), TTL: time.Hour})
	for range 3 {
		n, err := entries.Incr(ctx)
		switch {
		case errors.Is(err, redlatch.ErrOutOfRange):
			fmt.Println("too late")
		case err == nil:
			fmt.Println("number", n)
		}
	}
	// Output:
	// number 1
	// number 2
	// too late
}

// The DECR form: the value is what is left.
func ExampleCounter_Decr() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	left := c.Counter("coupons:left", rcounter.CounterOptions{Initial: 2, Min: rcounter.Bound(0)})
	for range 3 {
		n, err := left.Decr(ctx)
		fmt.Println(n, errors.Is(err, redlatch.ErrOutOfRange))
	}
	// Output:
	// 1 false
	// 0 false
	// 0 true
}

// What a refusal says.
func ExampleCounter_Add() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	v, err := c.Counter("seats", rcounter.CounterOptions{Max: rcounter.Bound(3)}).Add(ctx, 5)
	fmt.Println(v, errors.Is(err, redlatch.ErrOutOfRange))
	fmt.Println(err)
	// Output:
	// 0 true
	// rcounter: out of range: "seats" stands at 0, adding 5 would pass 3
}

// A counter that was never written has its initial value, and reading it does not create it.
func ExampleCounter_Get() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	seats := c.Counter("seats", rcounter.CounterOptions{Initial: 250})
	free, err := seats.Get(ctx)
	fmt.Println(free, err)
	if _, err := seats.Add(ctx, -2); err != nil {
		log.Fatal(err)
	}
	free, err = seats.Get(ctx)
	fmt.Println(free, err)
	// Output:
	// 250 <nil>
	// 248 <nil>
}

// A stocktaking corrects the number of boxes, and a number below the minimum is refused.
func ExampleCounter_Set() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	boxes := c.Counter("boxes:tea", rcounter.CounterOptions{Initial: 40, Min: rcounter.Bound(0)})
	for _, counted := range []int64{37, -1} {
		err := boxes.Set(ctx, counted)
		fmt.Println("refused:", errors.Is(err, redlatch.ErrOutOfRange))
	}
	n, err := boxes.Get(ctx)
	fmt.Println(n, err)
	// Output:
	// refused: false
	// refused: true
	// 37 <nil>
}

// A version that grows by one with each change: who comes with an old one has to read again.
func ExampleCounter_CompareAndSet() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	version := c.Counter("document:7", rcounter.CounterOptions{Initial: 1})
	seen, err := version.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, editor := range []string{"ann", "bob"} {
		set, err := version.CompareAndSet(ctx, seen, seen+1)
		switch {
		case errors.Is(err, redlatch.ErrUnknownOutcome):
			fmt.Println(editor, "has to look whether it is", seen+1)
		case err != nil:
			log.Fatal(err)
		case set:
			fmt.Println(editor, "writes version", seen+1)
		default:
			fmt.Println(editor, "reads again")
		}
	}
	// Output:
	// ann writes version 2
	// bob reads again
}

// What must not happen: an id with another amount, and a write beyond the bounds.
func ExampleCounter_AddOnce_refused() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	points := c.Counter("points:ann", rcounter.CounterOptions{Min: rcounter.Bound(0), Max: rcounter.Bound(100)})
	for _, order := range []struct {
		id string
		d  int64
	}{{"order-1", 90}, {"order-1", 80}, {"order-2", 20}} {
		v, _, err := points.AddOnce(ctx, order.id, order.d)
		switch {
		case errors.Is(err, redlatch.ErrMismatch):
			fmt.Println(order.id, "was used for another amount")
		case errors.Is(err, redlatch.ErrOutOfRange):
			fmt.Println(order.id, "is refused at", v)
		case err != nil:
			log.Fatal(err) // ErrUnknownOutcome included: asking again is safe
		default:
			fmt.Println(order.id, v)
		}
	}
	fmt.Println(errors.Is(points.Set(ctx, 101), redlatch.ErrOutOfRange))
	// Output:
	// order-1 90
	// order-1 was used for another amount
	// order-2 is refused at 90
	// true
}

// A crowd of a process shares calls, and each caller has a value of its own.
func ExampleOptions_observer() {
	hub, end := demo()
	defer end()
	var shared atomic.Int64 // the calls of Incr that went with others
	c, err := rcounter.New(hub, rcounter.Options{CallTimeout: 10 * time.Second,
		Observer: func(ctx context.Context, e redlatch.Event) context.Context {
			if e.Kind == redlatch.EventShared {
				shared.Add(e.N)
			}
			return ctx
		}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	hits := c.Counter("hits", rcounter.CounterOptions{})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := hits.Incr(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	v, err := hits.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v, shared.Load() <= 50)
	// Output: 50 true
}

// A counter of its own client: set, and changed if nobody else has changed it.
func Example() {
	hub, end := demo()
	defer end()
	counters, err := rcounter.New(hub, rcounter.Options{KeyPrefix: "shop:", CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer counters.Close(ctx)

	price := counters.Counter("price", rcounter.CounterOptions{})
	if err := price.Set(ctx, 100); err != nil {
		log.Fatal(err)
	}
	set, err := price.CompareAndSet(ctx, 100, 90)
	fmt.Println(set, err)
	set, err = price.CompareAndSet(ctx, 100, 80)
	fmt.Println(set, err)
	// Output:
	// true <nil>
	// false <nil>
}

// Metrics of what is written.
func ExampleClient_observer() {
	hub, end := demo()
	defer end()
	events := 0
	var metrics rcounter.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		events++
		fmt.Println(e.Name, e.Took > 0, e.Err)
		return ctx
	}
	counters, err := rcounter.New(hub, rcounter.Options{CallTimeout: 10 * time.Second, Observer: metrics})
	if err != nil {
		log.Fatal(err)
	}
	defer counters.Close(context.Background())
	counters.Counter("hits", rcounter.CounterOptions{}).Incr(context.Background())
	fmt.Println(events)
	// Output:
	// hits true <nil>
	// 1
}
