package rcounter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
)

// demo is a hub on an embedded server; a program would call pubsub.Dial with its server's address.
func demo() (h *pubsub.Hub, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true})
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

// Two units, three claimants, and one of them asks again.
func Example() {
	hub, end := demo()
	defer end()
	c, err := rcounter.New(hub, rcounter.Options{KeyPrefix: "shop:", CallTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	sale := c.Stock("sneakers")
	if _, err := sale.Open(ctx, rcounter.OpenSpec{Limit: 2, OpenFor: time.Hour}); err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob", "cid", "bob"} {
		g, err := sale.Claim(ctx, user)
		if err != nil {
			log.Fatal(err) // no answer: asking again is safe
		}
		fmt.Println(user, g.Outcome, g.Ordinal)
	}
	// Output:
	// ann granted 1
	// bob granted 2
	// cid sold out 0
	// bob replayed 2
}

// A handler needs to know only whether the claimant won: the answer to a repeated request is the same.
func ExampleStock_Claim() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, rcounter.OpenSpec{Limit: 1, OpenFor: time.Hour})

	for _, user := range []string{"ann", "bob", "ann"} {
		switch g, err := sale.Claim(ctx, user); {
		case err != nil:
			fmt.Println("503, try again:", err)
		case g.Won():
			fmt.Printf("%s has seat %d\n", user, g.Ordinal)
		default:
			fmt.Printf("%s: %v\n", user, g.Outcome)
		}
	}
	// Output:
	// ann has seat 1
	// bob: sold out
	// ann has seat 1
}

// A unit that is returned is sold again under a new ordinal, and a second copy of the cancellation changes nothing.
func ExampleStock_Return() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	sale := c.Stock("tickets")
	sale.Open(ctx, rcounter.OpenSpec{Limit: 1, OpenFor: time.Hour})

	first, _ := sale.Claim(ctx, "ann")
	returned, _ := sale.Return(ctx, "ann", first.Ordinal)
	fmt.Println("returned", first.Ordinal, returned)
	again, _ := sale.Claim(ctx, "ann")
	fmt.Println(again.Outcome, again.Ordinal)
	returned, _ = sale.Return(ctx, "ann", first.Ordinal)
	fmt.Println("returned", first.Ordinal, returned)
	// Output:
	// returned 1 true
	// granted 2
	// returned 1 false
}

// A sale that is announced: open it ahead, for an instant by time.Until.
func ExampleStock_Open() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()
	noon := time.Now().Add(3 * time.Hour)

	sale := c.Stock("tickets")
	sale.Open(ctx, rcounter.OpenSpec{Limit: 100, StartIn: max(0, time.Until(noon)), OpenFor: time.Hour, Retain: 7 * 24 * time.Hour})
	g, _ := sale.Claim(ctx, "ann")
	fmt.Println(g.Outcome)
	_, err := sale.Open(ctx, rcounter.OpenSpec{Limit: 5, OpenFor: time.Hour}) // a second server of the fleet starts
	fmt.Println(errors.Is(err, rcounter.ErrAlreadyOpen))
	// Output:
	// not started
	// true
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
		case errors.Is(err, rcounter.ErrOutOfRange):
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
		fmt.Println(n, errors.Is(err, rcounter.ErrOutOfRange))
	}
	// Output:
	// 1 false
	// 0 false
	// 0 true
}

// What a refusal says.
func ExampleRangeError() {
	c, end := demoClient()
	defer end()
	ctx := context.Background()

	_, err := c.Counter("seats", rcounter.CounterOptions{Max: rcounter.Bound(3)}).Add(ctx, 5)
	var full *rcounter.RangeError
	if errors.As(err, &full) {
		fmt.Println(full.Value, full.Delta, full.Bound)
	}
	fmt.Println(err)
	// Output:
	// 0 5 3
	// rcounter: out of range: "seats" stands at 0, adding 5 would pass 3
}

// A name that cannot be used is refused by the first verb, before anything is sent.
func ExampleClient_Stock_invalidName() {
	c, end := demoClient()
	defer end()

	_, err := c.Stock("sale{1}").Claim(context.Background(), "ann")
	fmt.Println(errors.Is(err, rcounter.ErrInvalidName))
	// Output: true
}
